//! Tests of the terminal, drawn into memory.

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use rnic_host::observe::QueuePairSnapshot;

use super::*;

/// Returns a snapshot of a process with three queue pairs: of number n, `packets` times n packets sent, and n timeouts
/// for odd numbers.
fn snapshot(uptime_us: u64, packets: u64) -> Snapshot {
    let pair = |number: u32| QueuePairSnapshot {
        number,
        service: "RC".to_owned(),
        state: "RTS".to_owned(),
        peer: "192.0.2.1:4791".to_owned(),
        packets_sent: packets * u64::from(number),
        packets_retransmitted: packets / 100,
        timeouts: u64::from(number % 2 * (4 - number)),
        ..QueuePairSnapshot::default()
    };
    Snapshot {
        pid: 4_711,
        program: "ib\u{1b}[31m_bw".to_owned(),
        uptime_us,
        queue_pairs: vec![pair(1), pair(3), pair(2)],
        ..Snapshot::default()
    }
}

fn drawn(screen: &mut Screen, columns: u16, lines: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(columns, lines)).expect("memory");
    terminal.draw(|frame| screen.draw(frame)).expect("memory");
    let buffer = terminal.backend().buffer();
    let line = |y| (0..columns).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
    (0..lines).map(line).collect::<Vec<_>>().join("\n")
}

fn numbers(screen: &Screen) -> Vec<u32> {
    screen.rows.iter().map(|row| row.key.2).collect()
}

fn press(screen: &mut Screen, code: KeyCode) -> Reaction {
    screen.press(KeyEvent::new(code, KeyModifiers::NONE))
}

fn watched() -> Screen {
    let mut screen = Screen::new(vec![snapshot(1_000_000, 1_000)]);
    screen.update(vec![snapshot(2_000_000, 3_000)]);
    screen
}

#[test]
fn queue_pairs_are_sorted_by_the_chosen_column() {
    let mut screen = watched();
    assert_eq!(numbers(&screen), [3, 2, 1]);
    press(&mut screen, KeyCode::Char('r'));
    assert_eq!(numbers(&screen), [1, 2, 3]);
    while PAIRS.heads[screen.sort.0] != "timeouts" {
        press(&mut screen, KeyCode::Right);
    }
    assert_eq!(numbers(&screen), [1, 3, 2]);
    let page = drawn(&mut screen, 160, 30);
    assert!(page.contains("timeoutsv") && page.contains("by timeouts: up down"), "{page}");
    for _ in PAIRS.heads {
        press(&mut screen, KeyCode::Left);
        assert!(screen.sort.0 >= FIRST_NUMBER);
    }
}

#[test]
fn the_selected_queue_pair_stays_selected_and_shows_its_history() {
    let mut screen = watched();
    press(&mut screen, KeyCode::Down);
    assert_eq!(screen.selected, Some((4_711, 0, 2)));
    press(&mut screen, KeyCode::Char('r'));
    press(&mut screen, KeyCode::Home);
    press(&mut screen, KeyCode::End);
    assert_eq!(screen.selected, Some((4_711, 0, 3)));
    screen.update(vec![snapshot(3_000_000, 4_000)]);
    let page = drawn(&mut screen, 160, 30);
    assert!(page.contains("4711 0x000003, packets sent per second: 3010 (at most 6020 in 2 updates)"), "{page}");
    assert!(page.contains("retransmitted since the update before: 10"), "{page}");
    let mut gone = snapshot(4_000_000, 5_000);
    gone.queue_pairs.remove(1);
    screen.update(vec![gone]);
    assert_eq!((screen.selected, numbers(&screen)), (Some((4_711, 0, 1)), vec![1, 2]));
    screen.update(Vec::new());
    assert_eq!(screen.selected, None);
    assert!(drawn(&mut screen, 160, 30).contains("No process of yours"));
}

/// A page of any size is drawn, without what programs put into their names.
#[test]
fn every_size_of_terminal_is_drawn_and_names_are_harmless() {
    let mut screen = watched();
    for columns in [1, 10, 40, 80, 120, 300] {
        for lines in [1, 2, 5, 17, 18, 60] {
            let page = drawn(&mut screen, columns, lines);
            assert!(!page.contains('\u{1b}'), "{columns} x {lines}: {page}");
        }
    }
    assert!(drawn(&mut screen, 80, 30).contains("packet/s out"), "a column that may not be omitted is");
}

#[test]
fn keys_end_and_pause_it() {
    let mut screen = watched();
    assert_eq!(press(&mut screen, KeyCode::Char('x')), Reaction::Stay);
    press(&mut screen, KeyCode::Char(' '));
    assert!(screen.is_paused && drawn(&mut screen, 160, 30).contains("paused, queue pair 1 of 3"));
    assert_eq!(screen.press(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL)), Reaction::Quit);
    assert_eq!(press(&mut screen, KeyCode::Char('q')), Reaction::Quit);
}
