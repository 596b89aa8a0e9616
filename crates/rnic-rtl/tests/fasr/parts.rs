//! Modules around SR, each alone and cycle by cycle: QPC manager, congestion control, RTO walker, Send Queue and Update
//! Queue.

use std::collections::VecDeque;

use rnic_base::RandomStream;
use rnic_rtl::spec::fasr::{Ack, CAP, Event, Kind, Lost, Pack, Retransmission, distance, plus};
use rnic_rtl::verilated::Model;

use super::modules::{CONTEXT, EVENT, TIMER};
use super::top::SAYS;
use super::{Differences, events, verilated};

/// Packets in flight from which on an expired timer is extended first.
const FEW: u32 = 3;
/// Packets that a work request sends in a turn.
const BATCH: u8 = 8;
/// Queue pairs of the layer.
const QPS: usize = 1024;

fn bit(value: bool) -> Pack {
    Pack::default().field(value.into(), 1)
}

fn number(value: u32, width: u32) -> Pack {
    Pack::default().field(value.into(), width)
}

/// Returns a value that is compared only where it is valid.
fn valid_number(is_valid: bool, value: u32, width: u32) -> Pack {
    Pack::default().field_if(is_valid, value.into(), width)
}

fn event_of(head: Option<&Event>) -> Pack {
    head.map_or(Pack::default().field_if(false, 0, EVENT), Pack::from)
}

/// Each input in words of its own.
fn words(packs: &[Pack]) -> Vec<u64> {
    packs.iter().flat_map(Pack::words).collect()
}

fn psn(random: &mut RandomStream) -> u32 {
    random.bits() as u32 & 0xff_ffff
}

fn flip(random: &mut RandomStream, one_in: u64) -> bool {
    random.below(one_in) == 0
}

/// Checks the walker in so many cycles: it visits a queue pair in each while its queue of four has room for two, and
/// reports the next cycle if the timer is off or its time has come.
pub fn check_rto(model: Model, cycles: u64) {
    let mut differences = Differences::new(model, 21);
    let mut random = differences.stream("walker");
    let (mut at, mut visited, mut queue) = (0u32, None, VecDeque::<Event>::new());
    for _ in 0..cycles {
        let (run, now, una) = (!flip(&mut random, 16), psn(&mut random), psn(&mut random));
        let in_flight = [0, 1, FEW - 1, FEW, FEW + 1, 400][random.below(6) as usize];
        let (on, extended) = (!flip(&mut random, 4), flip(&mut random, 2));
        // Mostly close to now, before or after; at times half of all numbers away.
        let away = if flip(&mut random, 8) { 1 << 23 } else { 0 };
        let deadline = plus(now, away + random.below(5) as u32);
        let now = plus(now, 2);
        let ready = random.below(3) == 0;
        let timer = [bit(on), bit(extended)].map(|pack| pack.words()[0]);
        let timer = timer[0] << 25 | timer[1] << 24 | u64::from(deadline);
        let head = queue.front().copied();
        let outputs = vec![number(at, 10), bit(head.is_some()), event_of(head.as_ref())];
        let inputs = [run.into(), now.into(), una.into(), plus(una, in_flight).into(), timer, ready.into()];
        differences
            .push(inputs.to_vec(), outputs, move || format!("{head:?}, {visited:?}, {in_flight} {deadline} {now}"));
        let visits = run && queue.len() < 3;
        let is_due = on && !(1..1 << 23).contains(&distance(now, deadline));
        if let Some(qp) = visited.filter(|_| in_flight != 0 && (is_due || !on)) {
            let kind = match (on, extended || in_flight < FEW) {
                (false, _) => Kind::Arm,
                (true, true) => Kind::Timeout,
                (true, false) => Kind::Extend,
            };
            queue.push_back(Event { qp, kind, cumulative: 0, psn: 0, lost: Lost::default() });
        }
        if head.is_some() && ready {
            queue.pop_front();
        }
        visited = visits.then_some(at as u16);
        at = (at + u32::from(visits)) % QPS as u32;
    }
    differences.finish();
}

/// A request that sends: what is left of its packets and of its turn, and the numbers of its queue pair.
#[derive(Clone, Copy, Debug)]
struct Turn {
    qp: u32,
    packets: u32,
    left: u8,
    una: u32,
    psn: u32,
    is_empty: bool,
}

/// The request behind it: popped, and its context once it is read.
#[derive(Clone, Copy, Debug)]
struct Behind {
    qp: u32,
    packets: u32,
    is_same: bool,
    context: Option<(u32, u32)>,
}

/// Congestion control as specified.
#[derive(Default)]
struct Control {
    queue: VecDeque<(u32, u32)>,
    turn: Option<Turn>,
    behind: Option<Behind>,
    /// The next packet of the last turn.
    psn: u32,
}

impl Control {
    /// Returns the next packet of the turn, or of the last one.
    fn next(&self) -> u32 {
        self.turn.map_or(self.psn, |turn| turn.psn)
    }

    fn may_send(&self) -> bool {
        self.turn.is_some_and(|turn| distance(turn.una, turn.psn) < CAP)
    }

    /// Moves on by a cycle. `context` is the one that is read, `wqe` a request that is accepted.
    fn step(&mut self, go: bool, ready: bool, context: (u32, u32), wqe: Option<(u32, u32)>) {
        let sends = self.may_send() && go && ready;
        let ends = self.ends(go, ready);
        let (head, current) = (self.queue.front().copied(), self.turn);
        let returned = self.returns(go, ready);
        self.queue.extend(returned.or(wqe));
        if let Some(turn) = self.turn.as_mut().filter(|_| sends) {
            turn.psn = plus(turn.psn, 1);
            turn.packets = (turn.packets - 1) & 0xffff;
            turn.left -= 1;
            turn.is_empty = false;
        }
        self.psn = self.next();
        if ends {
            self.turn = None;
        }
        match &mut self.behind {
            None => {
                if let Some((qp, packets)) = head {
                    self.queue.pop_front();
                    let is_same = current.is_some_and(|turn| turn.qp == qp);
                    self.behind = Some(Behind { qp, packets, is_same, context: None });
                }
            }
            Some(behind) if behind.context.is_none() => behind.context = Some(context),
            Some(behind) => {
                if let Some((una, next)) = behind.context.filter(|_| self.turn.is_none()) {
                    // The context was read while the turn before wrote it.
                    let psn = if behind.is_same { self.psn } else { next };
                    let is_empty = !behind.is_same && una == next;
                    let Behind { qp, packets, .. } = *behind;
                    self.turn = Some(Turn { qp, packets, left: BATCH, una, psn, is_empty });
                    self.behind = None;
                }
            }
        }
    }

    fn ends(&self, go: bool, ready: bool) -> bool {
        let sends = self.may_send() && go && ready;
        let is_last = self.turn.is_some_and(|turn| turn.packets == 1 || turn.left == 1);
        go && ((sends && is_last) || (self.turn.is_some() && !self.may_send()))
    }

    /// Returns the request that returns to the end of the queue.
    fn returns(&self, go: bool, ready: bool) -> Option<(u32, u32)> {
        let sends = self.may_send() && go && ready;
        let turn = self.turn.filter(|_| self.ends(go, ready))?;
        let packets = turn.packets - u32::from(sends);
        (packets != 0).then_some((turn.qp, packets))
    }
}

/// Checks congestion control in so many cycles: turns of requests, the cap, and timers of the first packets in flight.
pub fn check_cc(model: Model, cycles: u64) {
    let mut differences = Differences::new(model, 22);
    let mut random = differences.stream("requests");
    let mut control = Control::default();
    for cycle in 0..cycles {
        let (go, ready) = (!flip(&mut random, 8), !flip(&mut random, 4));
        let (now, rto, una) = (psn(&mut random), psn(&mut random), psn(&mut random));
        let in_flight = [0, 0, 1, CAP - 4, CAP - 1, CAP, 5][random.below(7) as usize];
        // The request behind one of its own queue pair goes on where that is.
        let una = match control.behind {
            Some(Behind { is_same: true, context: None, .. }) => plus(control.next(), in_flight.wrapping_neg()),
            _ => una,
        };
        let context = (una, plus(una, in_flight));
        // In phases the queue fills and empties, and there are few or many queue pairs.
        let offers = random.below(if cycle / 1_024 % 2 == 0 { 3 } else { 16 }) == 0;
        let qp = random.below(if cycle / 4_096 % 2 == 0 { 3 } else { QPS as u64 }) as u32;
        let most = [1, 3, 20, 0xffff][random.below(4) as usize];
        let wqe = (qp, 1 + random.below(most) as u32);
        let sends = control.may_send() && go && ready;
        let returns = control.returns(go, ready).is_some();
        let accepts = !returns && control.queue.len() < 61;
        let (turn, behind) = (control.turn, control.behind);
        let valid = control.may_send() && go;
        let starts = sends && turn.is_some_and(|turn| turn.is_empty);
        let head = control.queue.front().copied();
        let next = turn.map_or(0, |turn| turn.psn);
        let outputs = vec![
            bit(accepts),
            valid_number(head.is_some(), head.map_or(0, |(qp, _)| qp), 10),
            bit(valid),
            valid_number(valid, turn.map_or(0, |turn| turn.qp), 10),
            valid_number(valid, next, 24),
            bit(sends),
            valid_number(sends, plus(next, 1), 24),
            bit(starts),
            valid_number(starts, 1 << 25 | plus(now, rto), TIMER),
        ];
        let inputs = [
            go.into(),
            now.into(),
            rto.into(),
            offers.into(),
            u64::from(wqe.0) << 16 | u64::from(wqe.1),
            context.0.into(),
            context.1.into(),
            ready.into(),
        ];
        differences.push(inputs.to_vec(), outputs, move || format!("cycle {cycle}: {turn:?} {behind:?}"));
        control.step(go, ready, context, (offers && accepts).then_some(wqe));
    }
    differences.finish();
}

/// Retransmissions that wait in the Send Queue, and those that are being sent.
#[derive(Default)]
struct Retransmissions {
    queue: VecDeque<Retransmission>,
    current: Option<Retransmission>,
}

impl Retransmissions {
    /// Returns the next packet.
    fn packet(&self) -> Option<(u16, u32)> {
        self.current.as_ref().and_then(|sent| sent.packets().next().map(|psn| (sent.qp, psn)))
    }

    /// Moves on by a cycle, in which the next packet is sent or not, and more are passed.
    fn step(&mut self, sends: bool, passed: Option<Retransmission>) {
        if let Some(current) = self.current.as_mut().filter(|_| sends) {
            if current.is_map {
                current.argument &= current.argument - 1;
            } else {
                (current.psn, current.argument) = (plus(current.psn, 1), current.argument - 1);
            }
        }
        self.current = self.current.filter(|current| current.argument != 0).or_else(|| self.queue.pop_front());
        self.queue.extend(passed);
    }
}

fn draw_retransmission(random: &mut RandomStream) -> Retransmission {
    let is_map = flip(random, 2);
    let argument = if is_map { 1 + random.below(1_023) } else { 1 + random.below(12) } as u16;
    Retransmission { qp: random.below(QPS as u64) as u16, psn: psn(random), is_map, argument }
}

/// Checks the Send Queue in so many cycles, in which classes are held for some time.
pub fn check_send(model: Model, cycles: u64) {
    let mut differences = Differences::new(model, 25);
    let mut random = differences.stream("packets");
    let (mut acks, mut requests) = (VecDeque::<Ack>::new(), VecDeque::<(u16, u32)>::new());
    let mut retransmissions = Retransmissions::default();
    let mut hold = 0;
    for cycle in 0..cycles {
        if flip(&mut random, 64) {
            hold = random.below(16) & random.below(16);
        }
        // In phases there is less to send than cycles, and more.
        let rare = if cycle / 2_048 % 2 == 0 { 3 } else { 24 };
        let ack = Ack {
            qp: random.below(QPS as u64) as u16,
            say: SAYS[random.below(6) as usize],
            placed: flip(&mut random, 2),
            cumulative: psn(&mut random),
            psn: psn(&mut random),
            lost: Lost { count: random.below(8) as u8, overflow: flip(&mut random, 2) },
        };
        let request = (random.below(QPS as u64) as u16, psn(&mut random));
        let passed = draw_retransmission(&mut random);
        let new = (random.below(QPS as u64) as u32, psn(&mut random));
        let spaces = [16 - acks.len(), 16 - requests.len(), 128 - retransmissions.queue.len()];
        let passes_ack = flip(&mut random, rare) && spaces[0] != 0;
        let requests_read = flip(&mut random, rare);
        let retransmits = flip(&mut random, rare) && spaces[2] != 0;
        let has_new = flip(&mut random, 2);
        let retransmission = retransmissions.packet();
        let offers = [!acks.is_empty(), !requests.is_empty(), retransmission.is_some(), has_new];
        let class = (0..4).find(|class| offers[*class] && hold >> class & 1 == 0);
        let other = |(qp, psn): (u32, u32)| {
            number(qp, 10).field_if(false, 0, 4).field_if(false, 0, 24).field(psn.into(), 24).field_if(false, 0, 4)
        };
        let sent = match class {
            None => Pack::default().field_if(false, 0, 66),
            Some(0) => Pack::from(&acks[0]),
            Some(1) => other((requests[0].0.into(), requests[0].1)),
            Some(2) => retransmission.map_or_else(Pack::default, |(qp, psn)| other((qp.into(), psn))),
            Some(_) => other(new),
        };
        let outputs = vec![
            number(spaces[0] as u32, 5),
            bit(spaces[1] != 0),
            number(spaces[2] as u32, 8),
            bit(class == Some(3)),
            bit(class.is_some()),
            valid_number(class.is_some(), class.unwrap_or(0) as u32, 2).followed_by(sent),
        ];
        let inputs = [
            vec![hold, passes_ack.into()],
            Pack::from(&ack).words(),
            vec![requests_read.into(), request.0.into(), request.1.into(), retransmits.into()],
            Pack::from(&passed).words(),
            vec![has_new.into(), new.0.into(), new.1.into()],
        ];
        differences
            .push(inputs.concat(), outputs, move || format!("cycle {cycle}: {class:?} of {offers:?}, {hold:#b}"));
        match class {
            Some(0) => drop(acks.pop_front()),
            Some(1) => drop(requests.pop_front()),
            _ => {}
        }
        acks.extend(passes_ack.then_some(ack));
        requests.extend((requests_read && spaces[1] != 0).then_some(request));
        retransmissions.step(class == Some(2), retransmits.then_some(passed));
    }
    differences.finish();
}

/// Checks which module writes the contexts, for so many inputs.
pub fn check_update(model: Model, events: u64) {
    let mut differences = Differences::new(model, 23);
    let mut random = differences.stream("writes");
    for _ in 0..events {
        let [init, cc_next, cc_timer, sr, sr_timer] = [(); 5].map(|()| flip(&mut random, 2));
        let [init_at, cc_at, sr_at] = [(); 3].map(|()| random.below(QPS as u64) as u32);
        let [rcv_nxt, una, cc_psn] = [(); 3].map(|()| psn(&mut random));
        let [cc_value, sr_timer_value] = [(); 2].map(|()| random.below(1 << TIMER) as u32);
        let (low, high) = (random.bits(), random.below(1 << (CONTEXT - 64)));
        let wide = |high: u64, low: u64| Pack::default().field(high, CONTEXT - 64).field(low, 64);
        let created = rnic_rtl::spec::fasr::Context { rcv_nxt, una, ..Default::default() };
        let inputs = words(&[
            bit(init),
            number(init_at, 10),
            number(rcv_nxt, 24),
            number(una, 24),
            bit(cc_next),
            bit(cc_timer),
            number(cc_at, 10),
            number(cc_psn, 24),
            number(cc_value, TIMER),
            bit(sr),
            bit(sr_timer),
            number(sr_at, 10),
            wide(high, low),
            number(sr_timer_value, TIMER),
        ]);
        let (timer_at, timer) = match (init, cc_timer) {
            (true, _) => (init_at, 0),
            (false, true) => (cc_at, cc_value),
            (false, false) => (sr_at, sr_timer_value),
        };
        let outputs = vec![
            bit(!init),
            bit(!init && !cc_timer),
            bit(init || sr),
            number(if init { init_at } else { sr_at }, 10),
            if init { Pack::from(&created) } else { wide(high, low) },
            bit(init || cc_next),
            number(if init { init_at } else { cc_at }, 10),
            number(if init { una } else { cc_psn }, 24),
            bit(init || cc_timer || sr_timer),
            number(timer_at, 10),
            number(timer, TIMER),
        ];
        differences.push(inputs, outputs, move || format!("{init} {cc_next} {cc_timer} {sr} {sr_timer}"));
    }
    differences.finish();
}

/// Returns the tag that the test's commands give a queue pair.
fn tag(qp: u32) -> u32 {
    qp * 77 + 5
}

fn command(creates: bool, qp: u32, [rcv_nxt, una]: [u32; 2]) -> Pack {
    let of_qp = bit(creates).field(qp.into(), 10).field(tag(qp).into(), 14);
    of_qp.field(rcv_nxt.into(), 24).field(una.into(), 24)
}

/// A packet of a test: number of the queue pair, kind and the rest.
#[derive(Clone, Copy, Debug)]
struct Packet {
    qpn: u32,
    kind: u8,
    cumulative: u32,
    psn: u32,
    lost: Lost,
}

impl Packet {
    /// Draws a packet of one of eight queue pairs, mostly with its tag.
    fn draw(random: &mut RandomStream) -> Self {
        let qp = random.below(8) as u32;
        let tag = if flip(random, 8) { random.below(1 << 14) as u32 } else { tag(qp) };
        let count = random.below(8) as u8;
        let lost = Lost { count, overflow: flip(random, 8) };
        Self { qpn: tag << 10 | qp, kind: random.below(16) as u8, cumulative: psn(random), psn: psn(random), lost }
    }

    fn pack(&self) -> Pack {
        let Self { qpn, kind, cumulative, psn, lost } = *self;
        Pack::default()
            .field(qpn.into(), 24)
            .field(kind.into(), 4)
            .field(cumulative.into(), 24)
            .field(psn.into(), 24)
            .field(u64::from(lost.overflow) << 3 | u64::from(lost.count), 4)
    }

    /// Returns the event for SR: a packet from outside is data or one of the acknowledgements.
    fn event(&self, is_data: bool) -> Event {
        let kind = match self.kind {
            _ if is_data => Kind::Data,
            1..=5 => Kind::ALL[usize::from(self.kind)],
            _ => Kind::Ack,
        };
        Event { qp: (self.qpn & 0x3ff) as u16, kind, cumulative: self.cumulative, psn: self.psn, lost: self.lost }
    }
}

/// Either path of the manager: packets in the cycle after their arrival, with the tag of their queue pair, and a queue.
#[derive(Default)]
struct Path {
    arrived: Option<(Event, bool)>,
    queue: VecDeque<Event>,
}

impl Path {
    /// Moves on by a cycle, in which the first event in the queue is taken if `ready`.
    fn step(&mut self, ready: bool) {
        let arrived = self.arrived.take().filter(|(_, is_legal)| *is_legal).map(|(event, _)| event);
        if ready {
            self.queue.pop_front();
        }
        self.queue.extend(arrived);
    }
}

/// Checks the manager in so many cycles: queue pairs come and go, and packets of others are dropped.
pub fn check_manager(model: Model, cycles: u64) {
    let mut differences = Differences::new(model, 24);
    let mut random = differences.stream("packets");
    let mut tags = vec![None; QPS];
    let (mut data, mut acks) = (Path::default(), Path::default());
    let mut started = 0;
    for cycle in 0..cycles {
        let resets = cycle % 8_192 == 8_191;
        let sweeps = cycle - started < QPS as u64;
        let (data_fits, ack_fits) = (data.queue.len() < 7, acks.queue.len() < 6);
        let commands = flip(&mut random, 6);
        let (creates, qp) = (!flip(&mut random, 3), random.below(8) as u32);
        let (rcv_nxt, una) = (psn(&mut random), psn(&mut random));
        let [offers_data, offers_ack] = [(); 2].map(|()| !flip(&mut random, 3));
        let [of_data, of_ack] = [(); 2].map(|()| Packet::draw(&mut random));
        let slow = if cycle / 512 % 2 == 0 { 4 } else { 1 };
        let [data_ready, ack_ready] = [(); 2].map(|()| flip(&mut random, slow));
        let inputs = words(&[
            bit(!resets),
            bit(commands),
            command(creates, qp, [rcv_nxt, una]),
            bit(offers_data),
            of_data.pack(),
            bit(offers_ack),
            of_ack.pack(),
            bit(data_ready),
            bit(ack_ready),
        ]);
        let takes_command = commands && !sweeps && ack_fits;
        let takes_data = offers_data && !sweeps && data_fits;
        let takes_ack = offers_ack && !sweeps && ack_fits && !commands;
        let init = sweeps || (takes_command && creates);
        let (at, rcv_nxt, una) = if sweeps { ((cycle - started) as u32, 0, 0) } else { (qp, rcv_nxt, una) };
        let heads = [&data, &acks].map(|path| path.queue.front().copied());
        let outputs = vec![
            bit(!sweeps && ack_fits),
            bit(!sweeps && data_fits),
            bit(!sweeps && ack_fits && !commands),
            bit(!sweeps),
            bit(init),
            valid_number(init, at, 10),
            valid_number(init, rcv_nxt, 24),
            valid_number(init, una, 24),
            bit(heads[0].is_some()),
            event_of(heads[0].as_ref()),
            bit(heads[1].is_some()),
            event_of(heads[1].as_ref()),
        ];
        differences.push(inputs, outputs, move || format!("cycle {cycle}: {heads:?} {of_data:?} {of_ack:?}"));
        data.step(data_ready);
        acks.step(ack_ready);
        let is_legal = |packet: &Packet| tags[(packet.qpn & 0x3ff) as usize] == Some(packet.qpn >> 10);
        data.arrived = takes_data.then(|| (of_data.event(true), is_legal(&of_data)));
        acks.arrived = takes_ack.then(|| (of_ack.event(false), is_legal(&of_ack)));
        if takes_command && !creates {
            // The fields behind the kind are not read.
            acks.arrived = Some((Event { qp: qp as u16, kind: Kind::Release, ..of_ack.event(false) }, true));
        }
        if takes_command {
            tags[qp as usize] = creates.then(|| tag(qp));
        }
        if resets {
            (data, acks, started) = (Path::default(), Path::default(), cycle + 1);
            tags.fill(None);
        }
    }
    differences.finish();
}

/// the modules around SR, each alone, with inputs of any order.
#[test]
fn r17_modules_around_sr_work_as_specified_in_each_cycle() {
    let Some(verilated) = verilated() else { return };
    let start = |name: &str| verilated.start(name, 6).expect("the model starts");
    check_rto(start("fasr_rto"), events());
    check_cc(start("fasr_cc"), events());
    check_send(start("fasr_send"), events());
    check_update(start("fasr_update"), events());
    check_manager(start("fasr_manager"), events());
}
