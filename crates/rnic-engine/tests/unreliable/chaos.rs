//! Random messages over a wire that loses, delays and duplicates packets at random: each delivered message is
//! complete, in order, and delivered once. A failure prints the seed that replays it.
#![expect(clippy::disallowed_methods, reason = "the environment selects longer runs")]

use super::*;
use rnic_base::{Probability, RandomStream, RandomStreams};

const MESSAGES: u64 = 200;
/// Bytes of memory for the receive of one message.
const SLOT: u64 = 6_000;
const LENGTHS: [u32; 7] = [0, 1, 100, 256, 1_024, 3_000, SLOT as u32];

/// One message: its length and `true` if it is a Write.
#[derive(Clone, Copy, Debug)]
struct Message {
    len: u32,
    writes: bool,
}

fn wire(random: &mut RandomStream) -> impl FnMut(&Sent) -> Fate + 'static + use<> {
    let mut chance = |choices: &[(u64, u64)]| {
        let (numerator, denominator) = choices[random.below(choices.len() as u64) as usize];
        Probability::ratio(numerator, denominator)
    };
    let loss = chance(&[(0, 1), (1, 100), (1, 20), (1, 3)]);
    let late = chance(&[(0, 1), (1, 50), (1, 5)]);
    let twice = chance(&[(0, 1), (1, 50), (1, 5)]);
    let mut random = RandomStreams::new(random.bits()).stream("wire");
    move |_| {
        if random.chance(loss) {
            Fate::Drop
        } else if random.chance(late) {
            Fate::Late(Duration::from_ns(random.below(60_000)))
        } else if random.chance(twice) {
            Fate::TwiceLate(Duration::from_ns(random.below(60_000)))
        } else {
            Fate::Deliver
        }
    }
}

fn place(random_slot: u64) -> u64 {
    TARGET + random_slot % 40 * SLOT
}

/// Every message carries its number as immediate data, so that a delivered message can be identified.
fn run(seed: u64) -> u64 {
    let mut random = RandomStreams::new(seed).stream("unreliable");
    let mut setup = setup();
    setup.psn = if random.below(2) == 0 { Psn::new(random.bits() as u32) } else { Psn::new(0xff_fff0) };
    setup.mtu = [256, 1_024, 4_096][random.below(3) as usize];
    setup.depth = random.between(1, 40) as u32;
    setup.srq = (random.below(3) == 0).then_some(40);
    let mut pair = Pair::new(&setup);
    pair.batch = random.below(2) == 0;
    pair.wire(wire(&mut random));
    let messages: Vec<Message> = (0..MESSAGES)
        .map(|_| Message { len: LENGTHS[random.below(7) as usize], writes: random.below(3) == 0 })
        .collect();
    let (mut posted, mut receives, mut sent, mut delivered, mut last) = (0, 0, 0, 0, None);
    while sent < MESSAGES {
        while posted < MESSAGES && post(&mut pair, posted, messages[posted as usize]).is_ok() {
            posted += 1;
        }
        while receives < delivered + 20 && post_receive(&mut pair, receives).is_ok() {
            receives += 1;
        }
        let until = pair.now + Duration::from_ns(random.between(1_000, 50_000));
        pair.run_until(until);
        pair.now = pair.now.max(until);
        for completion in pair.left.completions() {
            assert_eq!((completion.wr_id, completion.status), (sent, WcStatus::Success));
            sent += 1;
        }
        for completion in pair.right.completions() {
            assert_eq!((completion.wr_id, completion.status), (delivered, WcStatus::Success));
            let number = u64::from(completion.word);
            assert!(last.is_none_or(|last| last < number), "{number} after {last:?}");
            check(&pair, &completion, messages[number as usize]);
            last = Some(number);
            delivered += 1;
        }
    }
    delivered
}

fn post(pair: &mut Pair, number: u64, message: Message) -> Result<(), PostError> {
    let sge = pair.left.sge(number * 1_000, message.len);
    let (immediate, remote) = (Some(number as u32), pair.right.remote(place(number) + 250_000));
    let op = if message.writes { SendOp::Write { remote, immediate } } else { SendOp::Send { immediate } };
    let request = SendRequest { wr_id: number, op, sges: &[sge], flags: SendFlags::SIGNALED };
    pair.left.engine.post_send(pair.left.qpn, &request)
}

fn post_receive(pair: &mut Pair, number: u64) -> Result<(), PostError> {
    let sges = [pair.right.sge(place(number), 2_000), pair.right.sge(place(number) + 2_000, SLOT as u32 - 2_000)];
    let request = RecvRequest { wr_id: number, sges: &sges };
    match pair.right.srq {
        Some(srq) => pair.right.engine.objects_mut().post_srq_recv(srq, &request),
        None => pair.right.engine.post_recv(pair.right.qpn, &request),
    }
}

/// Checks that the delivered message is complete. A Write's memory may have been overwritten by a later Write, so
/// only Sends are compared.
fn check(pair: &Pair, completion: &Completion, message: Message) {
    assert_eq!(completion.byte_len, message.len);
    let expected = if message.writes { WcOpcode::RecvRdmaWithImm } else { WcOpcode::Recv };
    assert_eq!(completion.opcode, expected);
    if !message.writes {
        let (from, to) = (completion.word as usize * 1_000, place(completion.wr_id) as usize);
        let len = message.len as usize;
        assert_eq!(pair.right.memory[to..to + len], pair.left.memory[from..from + len]);
    }
}

#[test]
fn delivered_messages_are_complete_in_order_and_delivered_once() {
    let seeds = std::env::var("RNIC_CHAOS_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(150);
    let first = std::env::var("RNIC_CHAOS_FIRST").ok().and_then(|text| text.parse().ok()).unwrap_or(0);
    let mut delivered = 0;
    for seed in first..first + seeds {
        let Ok(count) = std::panic::catch_unwind(|| run(seed)) else {
            let command = "cargo test -p rnic-engine --test unreliable chaos";
            panic!("fails; replay: RNIC_CHAOS_FIRST={seed} RNIC_CHAOS_SEEDS=1 {command}");
        };
        delivered += count;
    }
    assert!(seeds < 50 || delivered > seeds * MESSAGES / 3, "only {delivered} messages of {seeds} seeds arrived");
}
