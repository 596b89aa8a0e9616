//! Tests of the reasons for which functions and descriptions are refused.

use std::borrow::Cow;

use crate::{Fields as _, Initial, Lowering, Parameter, StateField, Transport as _, Unit};

mod wide {
    use crate::prelude::*;

    crate::transport! {
        /// Has a literal that is too wide.
        program Wide("wide") {
            scheme: window,
            start: { window: 32, rate: 0, timer: rto },
        }
        state State {
            acks: 8,
        }
        parameters Parameters {
            /// Timeout.
            rto: 24 = 2 s,
        }
    }

    /// Line of the literal.
    pub(super) const LINE: u32 = line!() + 5;

    #[program]
    pub fn incoming(i: &Incoming, p: &Parameters, s: &mut State, a: &mut Actions) {
        if i.ack {
            s.acks = u(300);
        }
        a.timer = p.rto;
    }

    #[program]
    pub fn periodic(v: &Periodic, p: &Parameters, s: &mut State, a: &mut Actions) {
        a.mark = v.expired && s.acks == 0;
        a.timer = p.rto;
    }
}

mod deep {
    use crate::prelude::*;

    crate::transport! {
        /// Divides too often.
        program Deep("deep") {
            scheme: window,
            start: { window: 32, rate: 0, timer: 2000 },
        }
        state State {
            acks: 8,
        }
        parameters Parameters {
            /// Steps.
            step: 8 = 1,
        }
    }

    #[program]
    fn quotient(of: U<8>) -> U<8> {
        of / 3 / 3 / 3 / 3
    }

    #[program]
    pub fn incoming(i: &Incoming, p: &Parameters, s: &mut State, a: &mut Actions) {
        a.mark = i.ack;
        s.acks = p.step;
    }

    #[program]
    pub fn periodic(v: &Periodic, p: &Parameters, s: &mut State, a: &mut Actions) {
        a.mark = v.expired && p.step == 1;
        s.acks = quotient(quotient(quotient(s.acks)));
    }
}

#[test]
fn a_literal_that_is_too_wide_is_named_with_its_place() {
    let error = wide::Wide.graphs(Lowering::Joins).expect_err("it has no graph").to_string();
    let place = format!("record/tests.rs, line {}, function `incoming`: ", wide::LINE);
    assert!(error.contains(&place), "{error}");
    assert!(error.ends_with("the literal 300 does not fit into 8 bits (at most 255)"), "{error}");
}

#[test]
fn a_graph_that_is_too_deep_is_named_by_its_function() {
    let error = deep::Deep.graphs(Lowering::Joins).expect_err("it is too deep").to_string();
    assert!(error.starts_with("function `periodic`: the path to output next_acks has "), "{error}");
}

#[test]
fn faults_of_descriptions_have_their_numbers() {
    let description = wide::Wide.description();
    assert_eq!(description.defaults(), [12_500_000], "a second is not 10^9 ns");
    let parameter = |name: &'static str, unit, [min, default, max]: [u64; 3]| {
        let mut described = description.clone();
        let (name, help) = (Cow::Borrowed(name), Cow::Borrowed("Help."));
        described.parameters.push(Parameter { name, help, bits: 8, unit, default, min, max });
        described.check().expect_err("it is refused").to_string()
    };
    for (unit, values, expected) in [
        (
            Unit::Time,
            [160, 0, 40_000],
            "`x`: the default, 0 ps, is less than the minimum, 160 ns, where a tick is 160 ns",
        ),
        (Unit::Count, [5, 3, 255], "`x`: the default, 3, is less than the minimum, 5"),
        (Unit::Count, [1, 300, 255], "`x`: the default, 300, exceeds the maximum, 255"),
        (Unit::Count, [1, 3, 256], "`x`: the maximum, 256, does not fit into 8 bits"),
        (Unit::Time, [160, 160, 1_000_000], "`x`: the maximum, 1 ms, does not fit into 8 bits"),
    ] {
        assert_eq!(parameter("x", unit, values), format!("parameter {expected}"));
    }
    assert!(parameter("cnp_interval", Unit::Count, [1, 4, 255]).contains("`cnp_interval` is a time and has no unit"));
    let initial = |initial, bits| {
        let mut described = description.clone();
        described.state.push(StateField { name: "big".into(), bits, initial, due: crate::Due::No });
        described.check().expect_err("it is refused").to_string()
    };
    let of = |name: &'static str| Initial::Parameter(name.into());
    let head = "the initial value of `big` is ";
    assert_eq!(initial(Initial::Constant(99), 4), format!("{head}99, which does not fit into 4 bits"));
    assert_eq!(initial(of("no"), 4), format!("{head}the parameter `no`, which does not exist"));
    assert!(initial(of("rto"), 4).starts_with(&format!("{head}the parameter `rto`, whose maximum, 2.6")));
}
