//! S-9: the line is a seqlock. Hints that change values are tested where they are applied (`nic/hint`).

use super::*;

const HINT: Hint = Hint { weight: 1, cap_kbps: 0 };

/// Overwrites one word of a line without its sequence number, as a broken program does.
fn scribble(line: &HintLine, word: usize) {
    match word {
        0 => line.magic.store(MAGIC + 1, Ordering::Relaxed),
        word => line.reserved[word - 1].store(1, Ordering::Relaxed),
    }
}

#[test]
fn s9_a_line_that_is_being_written_is_read_when_it_is_complete() {
    let mut reader = HintReader::new(HINT);
    assert!(!reader.has_changed());
    let line = Arc::clone(reader.line());
    line.sequence.store(1, Ordering::Relaxed);
    line.weight.store(7, Ordering::Relaxed);
    assert!(reader.has_changed());
    assert_eq!(reader.read(), Err(Unreadable::Torn));
    assert!(!reader.has_changed(), "a torn line is read over and over");
    line.sequence.store(2, Ordering::Release);
    assert!(reader.has_changed());
    assert_eq!(reader.read(), Ok(Hint { weight: 7, cap_kbps: 0 }));
    // A writer that was stopped in the middle is followed by one that completes.
    line.sequence.store(3, Ordering::Relaxed);
    line.write(Hint { weight: 8, cap_kbps: 1 });
    assert_eq!(reader.read(), Ok(Hint { weight: 8, cap_kbps: 1 }));
}

#[test]
fn s9_a_line_of_another_version_is_not_read() {
    for word in 0..=RESERVED_WORDS {
        let mut reader = HintReader::new(HINT);
        let line = Arc::clone(reader.line());
        scribble(&line, word);
        line.write(Hint { weight: 7, cap_kbps: 0 });
        assert_eq!(reader.read(), Err(Unreadable::Foreign), "word {word}");
    }
}

/// A thread writes hints whose two values belong together; the reader never sees two that do not, and sees the last.
#[test]
fn s9_values_of_two_hints_are_never_mixed() {
    const WRITES: u32 = if cfg!(miri) { 100 } else { 4_000_000 };
    let hint = |number: u32| Hint { weight: number, cap_kbps: !number };
    let mut reader = HintReader::new(HINT);
    let line = Arc::clone(reader.line());
    let writer = std::thread::spawn(move || {
        for number in 1..=WRITES {
            line.write(hint(number));
            // The reader finds some hints complete, also where both threads have one processor.
            if number.is_multiple_of(1 << 15) {
                std::thread::yield_now();
            }
        }
    });
    let mut last = HINT;
    while last != hint(WRITES) {
        if !reader.has_changed() {
            std::hint::spin_loop();
        } else if let Ok(read) = reader.read() {
            assert_eq!(read, hint(read.weight));
            assert!(read.weight >= last.weight, "an old hint after a new one");
            last = read;
        }
    }
    writer.join().expect("it ends");
}
