//! Declaration of a transport program: `transport!`.

use crate::fields::Unit;

/// Declares a transport program: its state, its parameters and how a flow starts. Its two functions,
/// [`#[program]`](macro@crate::program) functions called `incoming` and `periodic`, stand in the same module:
///
/// ```
/// # mod repeat {
/// use rnic_program::prelude::*;
///
/// transport! {
///     /// Repeats everything that is outstanding when the receiver reports a gap, or after a timeout.
///     program Repeat("repeat") {
///         scheme: window,
///         start: { window: cap, rate: 0, timer: rto },
///     }
///     state State {
///         repeats: 8,
///     }
///     parameters Parameters {
///         /// Segments in flight at most.
///         cap: 8 = 32 [1..=128],
///         /// Time without progress after which segments are repeated.
///         rto: 24 = 320 us,
///     }
/// }
///
/// #[program]
/// pub fn incoming(i: &Incoming, p: &Parameters, s: &mut State, a: &mut Actions) {
///     a.mark = i.nack;
///     a.from = i.start;
///     a.to = i.next;
///     if i.nack {
///         s.repeats = s.repeats.saturating_add(1);
///     }
/// }
///
/// #[program]
/// pub fn periodic(v: &Periodic, p: &Parameters, s: &mut State, a: &mut Actions) {
///     a.mark = v.expired;
///     a.from = v.start;
///     a.to = v.next;
/// }
/// # }
/// # fn main() {
/// # use rnic_program::Transport;
/// # repeat::Repeat.graphs(rnic_program::Lowering::Joins).unwrap();
/// # }
/// ```
///
/// `receiver: drops`, after the scheme, asks for a receiver that drops packets out of order; without it they are
/// placed.
/// A field of the state is `name: width`, `name: flag`, with `= number` or `= parameter` for its initial value (zero
/// otherwise), and `due time` or `due sent` when the periodic function has work from that time on, or once that many
/// segments have been sent. A parameter is `name: width = default`, with the unit of times (`ns`, `us`, `ms`) or rates
/// (`mbps`, `gbps`), and with its bounds; without any, it is at least one, or one tick. Simulations set a
/// parameter called `line_rate`, and receivers send CNPs if there is one called `cnp_interval`.
#[macro_export]
macro_rules! transport {
    (
        #[doc = $summary:literal] $(#[doc = $more:literal])*
        program $program:ident($name:literal) {
            scheme: $scheme:ident,
            $(receiver: $receiver:ident,)?
            start: { window: $window:tt, rate: $rate:tt, timer: $timer:tt } $(,)?
        }
        state $state:ident {
            $($(#[$field_meta:meta])* $field:ident: $width:tt $(= $initial:tt)? $(due $due:ident)?),* $(,)?
        }
        parameters $parameters:ident {
            $(#[doc = $help:literal] $parameter:ident: $bits:literal = $default:literal $($unit:ident)?
                $([$min:literal..=$max:literal])?),* $(,)?
        }
    ) => {
        #[doc = $summary] $(#[doc = $more])*
        #[derive(Clone, Copy, Debug)]
        pub struct $program;

        $crate::bundle! {
            /// State of a flow.
            pub struct $state {
                $($(#[$field_meta])* #[allow(missing_docs, reason = "fields may have comments only")]
                $field: $crate::program_type!($width),)*
            }
        }

        $crate::bundle! {
            /// Parameters of the program.
            pub struct $parameters {
                $(#[doc = $help] $parameter: $crate::U<$bits>,)*
            }
        }

        impl $crate::Transport for $program {
            fn description(&self) -> $crate::Description {
                $crate::Description {
                    name: $name.into(),
                    summary: $summary.trim().into(),
                    scheme: $crate::program_scheme!($scheme),
                    receiver: $crate::program_receiver!($($receiver)?),
                    start: $crate::Start {
                        window: $crate::program_initial!($window),
                        rate: $crate::program_initial!($rate),
                        timer: $crate::program_initial!($timer),
                    },
                    state: vec![$($crate::StateField {
                        name: stringify!($field).into(),
                        bits: $crate::declare::bits::<$crate::program_type!($width)>(),
                        initial: $crate::program_initial!($($initial)?),
                        due: $crate::program_due!($($due)?),
                    },)*],
                    parameters: vec![$($crate::declare::parameter(
                        (stringify!($parameter), $help.trim(), $bits),
                        stringify!($($unit)?),
                        $default,
                        $crate::program_bounds!($($min, $max)?),
                    ),)*],
                    lines: incoming::LINES + periodic::LINES + <$state as $crate::Bundle>::FIELDS.len() as u32,
                }
            }

            #[inline]
            fn incoming(
                &self,
                packet: &$crate::Incoming,
                parameters: &[u64],
                state: &mut [u8],
                actions: &mut $crate::Actions,
            ) {
                let parameters = <$parameters as $crate::Bundle>::read_words(parameters);
                let mut fields = <$state as $crate::Bundle>::load(state);
                incoming(packet, &parameters, &mut fields, actions);
                $crate::Bundle::store(&fields, state);
            }

            #[inline]
            fn periodic(
                &self,
                visit: &$crate::Periodic,
                parameters: &[u64],
                state: &mut [u8],
                actions: &mut $crate::Actions,
            ) {
                let parameters = <$parameters as $crate::Bundle>::read_words(parameters);
                let mut fields = <$state as $crate::Bundle>::load(state);
                periodic(visit, &parameters, &mut fields, actions);
                $crate::Bundle::store(&fields, state);
            }

            fn graphs(&self, lowering: $crate::Lowering) -> Result<$crate::Graphs, $crate::RecordError> {
                Ok($crate::Graphs {
                    incoming: $crate::record::<$crate::Incoming, $parameters, $state>(lowering, incoming::record)?,
                    periodic: $crate::record::<$crate::Periodic, $parameters, $state>(lowering, periodic::record)?,
                })
            }
        }
    };
}

/// The type of a field: `flag`, or a number of bits.
#[doc(hidden)]
#[macro_export]
macro_rules! program_type {
    (flag) => { bool };
    ($bits:literal) => { $crate::U<$bits> };
}

/// The credit scheme of this name.
#[doc(hidden)]
#[macro_export]
macro_rules! program_scheme {
    (window) => {
        $crate::Scheme::Window
    };
    (rate) => {
        $crate::Scheme::Rate
    };
    (token) => {
        $crate::Scheme::Token
    };
    ($other:ident) => {
        compile_error!("the scheme is window, rate or token")
    };
}

/// The receiver of this name; nothing stands for one that places packets out of order.
#[doc(hidden)]
#[macro_export]
macro_rules! program_receiver {
    () => {
        $crate::Receiver::Places
    };
    (places) => {
        $crate::Receiver::Places
    };
    (drops) => {
        $crate::Receiver::Drops
    };
    ($other:ident) => {
        compile_error!("the receiver places or drops packets that arrive out of order")
    };
}

/// An initial value: nothing (zero), a number, or the name of a parameter.
#[doc(hidden)]
#[macro_export]
macro_rules! program_initial {
    () => {
        $crate::Initial::Constant(0)
    };
    ($value:literal) => {
        $crate::Initial::Constant($value as u64)
    };
    ($parameter:ident) => {
        $crate::Initial::Parameter(stringify!($parameter).into())
    };
}

/// The deadline of this name.
#[doc(hidden)]
#[macro_export]
macro_rules! program_due {
    () => {
        $crate::Due::No
    };
    (time) => {
        $crate::Due::Time
    };
    (sent) => {
        $crate::Due::Sent
    };
    ($other:ident) => {
        compile_error!("a deadline is `due time` or `due sent`")
    };
}

/// The bounds of a parameter, if it has any of its own.
#[doc(hidden)]
#[macro_export]
macro_rules! program_bounds {
    () => {
        None
    };
    ($min:literal, $max:literal) => {
        Some(($min, $max))
    };
}

/// Returns the width of a field's type.
#[doc(hidden)]
pub const fn bits<T: crate::Leaf>() -> u8 {
    match T::KIND {
        crate::Kind::Bits(bits) => bits,
        crate::Kind::Map => 0,
    }
}

/// Builds a parameter from its declaration: name, help and width; unit; default; bounds.
///
/// # Panics
/// When the unit is not known.
#[doc(hidden)]
pub fn parameter(
    (name, help, bits): (&'static str, &'static str, u8),
    unit: &str,
    default: u64,
    bounds: Option<(u64, u64)>,
) -> crate::Parameter {
    let (unit, scale) = match unit {
        "" => (Unit::Count, 1),
        "ns" => (Unit::Time, 1),
        "us" => (Unit::Time, 1_000),
        "ms" => (Unit::Time, 1_000_000),
        "mbps" => (Unit::Rate, 1_000_000),
        "gbps" => (Unit::Rate, 1_000_000_000),
        other => panic!("unit `{other}` of parameter {name}: use ns, us, ms, mbps, gbps or none"),
    };
    let (min, max) = bounds.map_or((least(unit), largest(unit, bits)), |(min, max)| (min * scale, max * scale));
    crate::Parameter { name: name.into(), help: help.into(), bits, unit, default: default * scale, min, max }
}

/// Returns the least value of a parameter without bounds: one, or one tick.
const fn least(unit: Unit) -> u64 {
    match unit {
        Unit::Count | Unit::Rate => 1,
        Unit::Time => crate::interface::TICK_NS,
    }
}

/// Returns the largest value of a parameter of `bits` bits.
const fn largest(unit: Unit, bits: u8) -> u64 {
    let word = crate::fields::mask(bits);
    match unit {
        Unit::Count => word,
        Unit::Time => (word - 1).saturating_mul(crate::interface::TICK_NS),
        Unit::Rate => (word - 1).saturating_mul(390_625) / 32,
    }
}
