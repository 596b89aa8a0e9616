//! A program whose outputs depend on its inputs in no sensible way, one for each credit scheme. The timers of those
//! with windows and with tokens are so short that many expire.

macro_rules! wild {
    ($module:ident, $name:literal, $scheme:ident, $ticks:tt) => {
        pub mod $module {
            use rnic_program::prelude::*;

            transport! {
                /// Answers anything.
                program Wild($name) {
                    scheme: $scheme,
                    start: { window: 300, rate: start_rate, timer: 50 },
                }
                state State {
                    seed: 64 = 88172645463325252,
                }
                parameters Parameters {
                    /// Rate of a new flow.
                    start_rate: 23 = 0 [0..=1000000],
                }
            }

            #[program]
            pub fn incoming(i: &Incoming, p: &Parameters, s: &mut State, a: &mut Actions) {
                let one = s.seed ^ (s.seed << 13);
                let two = one ^ (one >> 7);
                let x = two ^ (two << 17);
                // Its later answers depend on all that it is told.
                let told = i.newly.to::<64>() + (i.total_sent.to::<64>() << 9) + (i.now.to::<64>() << 33);
                let ids = i.cum.to::<64>() + (i.sack.to::<64>() << 20) + (i.old_start.to::<64>() << 40);
                let maps = i.acked.count().to::<64>() + (i.marked.count().to::<64>() << 9);
                s.seed = x + told + ids + maps;
                if i.sack_new {
                    s.seed = x - told;
                }
                a.mark = i.nack || (x & 3) == 0;
                let near = i.start + ((x >> 8) & 255).to::<24>() - 64;
                let far = (x >> 30).to::<24>();
                a.from = if (x & 448) == 0 { far } else { near };
                a.to = if (x & 3584) == 0 { far + p.start_rate.to::<24>() } else { near + (x >> 40 & 127).to::<24>() };
                a.window = (x >> 16).to::<9>();
                a.rate = (x >> 27).to::<20>().to::<23>();
                if (x & 24576) == 0 {
                    a.rate = (x >> 20).to::<23>();
                }
                if (x & 24576) == 24576 {
                    a.rate =
                        if (x & 4096) == 0 { (x >> 27).to::<17>().to::<23>() } else { (x >> 27).to::<14>().to::<23>() };
                }
                if (x & 16744448) == 0 {
                    a.rate = (x >> 27).to::<10>().to::<23>();
                }
                a.restart = (x & 8) == 8;
                a.timer = if (x & 48) == 0 { (x >> 40).to::<24>() } else { ((x >> 40) & $ticks).to::<24>() };
            }

            #[program]
            pub fn periodic(v: &Periodic, p: &Parameters, s: &mut State, a: &mut Actions) {
                let one = s.seed ^ (s.seed << 13);
                let two = one ^ (one >> 7);
                let x = two ^ (two << 17);
                s.seed = x;
                a.mark = v.expired || (x & 15) == 0;
                let near = v.start + ((x >> 8) & 255).to::<24>() - 64;
                let far = (x >> 30).to::<24>();
                a.from = if (x & 448) == 0 { far } else { near };
                a.to = if (x & 3584) == 0 { far + p.start_rate.to::<24>() } else { near + (x >> 40 & 127).to::<24>() };
                if (x & 240) == 0 {
                    a.window = (x >> 16).to::<9>();
                    a.rate = (x >> 20).to::<23>();
                }
                a.restart = (x & 8) == 8;
                if (x & 48) == 0 {
                    a.timer = ((x >> 40) & $ticks).to::<24>();
                }
            }
        }
    };
}

wild!(window, "wild-window", window, 3);
wild!(rate, "wild-rate", rate, 255);
wild!(token, "wild-token", token, 3);
