//! Sends that find no receive (F-7).

use rnic_base::Duration;
use rnic_engine::{RnrTimer, SendOp, WcStatus};
use rnic_wire::falcon::{Body, NackCode, PacketType, Timestamp};

use crate::common::{BASE, DELAY, DELIVERED, INBOX, Pair, Setup};

const REFUSALS: usize = 4;

/// A Send that has been refused this many times is sent once more: each time after the RNR timer of the receiver, or
/// after the timeout where that is longer. In the end its bytes arrive.
#[test]
fn f7_a_send_is_retried_after_each_rnr_wait_until_a_receive_is_posted() {
    let least_timeout = Duration::from_us(250);
    let first_timeout = Duration::from_ms(1);
    let (long, short) = (RnrTimer::at_least(Duration::from_us(2_560)), RnrTimer::from_code(1));
    for (timer, least, most) in [(long, long.wait(), long.wait()), (short, least_timeout, first_timeout)] {
        let mut pair = Pair::new(&Setup { rnr_timer: timer, ..Setup::new(&[]) }, |_| DELIVERED);
        pair.ends[0].post(1, SendOp::Send { immediate: None }, BASE, 100);
        let refused = |pair: &Pair| {
            let refusals = pair.log.iter().filter_map(|sent| match sent.packet.body {
                Body::Nack(nack) => Some(nack.code),
                _ => None,
            });
            refusals.inspect(|code| assert_eq!(*code, NackCode::NotReady { timeout: timer })).count()
        };
        while refused(&pair) < REFUSALS {
            pair.run_for(DELAY);
        }
        assert_eq!(pair.ends[0].take(), []);
        pair.ends[1].post_recv(2, INBOX, 100);
        pair.run_for(Duration::from_ms(20));
        assert_eq!(refused(&pair), REFUSALS);
        assert_eq!(pair.ends.each_mut().map(|end| end.take()), [1, 2].map(|wr_id| vec![(wr_id, WcStatus::Success)]));
        assert_eq!(pair.ends[1].bytes(INBOX, 100), pair.ends[0].bytes(BASE, 100));
        let is_push = |kind| kind == PacketType::PushData;
        let left: Vec<_> = pair.log.iter().filter(|sent| is_push(sent.packet.body.packet_type())).collect();
        assert_eq!(left.len(), REFUSALS + 1);
        for two in left.windows(2) {
            // The NACK arrives one round-trip time after the refused packet was sent.
            let waited = two[1].at.since(two[0].at + DELAY * 2);
            let tick = Timestamp::UNIT;
            assert!(waited + tick >= least && waited <= most + tick, "{waited}, not {least} to {most}");
        }
    }
}
