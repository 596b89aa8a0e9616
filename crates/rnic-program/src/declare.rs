//! Declarations of programs: `transport!` and `law!`.

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
/// segments have been sent. A parameter is `name: width = default`, with the unit of times (`ns`, `us`, `ms`, `s`) or
/// rates (`mbps`, `gbps`), and with its bounds; without any, it is at least one, or one tick. Simulations set a
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
        state $state:ident { $($fields:tt)* }
        parameters $parameters:ident { $($list:tt)* }
    ) => {
        #[doc = $summary] $(#[doc = $more])*
        #[derive(Clone, Copy, Debug)]
        pub struct $program;

        $crate::program_block! { state $state { $($fields)* } parameters $parameters { $($list)* } }

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
                    state: <$state as $crate::declare::Block>::state(),
                    parameters: <$state as $crate::declare::Block>::parameters($crate::declare::Units::OfTransports),
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

            fn needs(&self) -> Result<$crate::Needs, $crate::RecordError> {
                $crate::ignored::needs(self)
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

/// Declares a law: a controller (`control`), a scheduler (`schedule`) or a path policy (`paths`), its state and its
/// parameters, declared as those of [`transport!`](crate::transport!). Its function, a
/// [`#[program]`](macro@crate::program) function called `decide`, stands in the same module:
///
/// ```
/// # mod halve {
/// use rnic_program::prelude::*;
///
/// law! {
///     /// Halves the rate when a congestion notification arrives.
///     law Halve("halve") for control
///     state State {
///         rate: 24,
///     }
///     parameters Parameters {
///         /// First rate.
///         first: 24 = 10 gbps,
///     }
/// }
///
/// #[program]
/// pub fn decide(e: &ControlInput, p: &Parameters, s: &mut State, a: &mut ControlOutput) {
///     if e.started {
///         s.rate = p.first;
///     }
///     if e.cnp {
///         s.rate = (s.rate >> 1).max(u(1));
///     }
///     a.rate = s.rate;
/// }
/// # }
/// # fn main() {
/// # use rnic_program::Law;
/// # halve::Halve.graph(rnic_program::Lowering::Joins).unwrap();
/// # }
/// ```
///
/// Rates are in units of 65,536 bit/s, times in nanoseconds.
#[macro_export]
macro_rules! law {
    (
        #[doc = $summary:literal] $(#[doc = $more:literal])*
        law $law:ident($name:literal) for $kind:ident
        state $state:ident { $($fields:tt)* }
        parameters $parameters:ident { $($list:tt)* }
    ) => {
        #[doc = $summary] $(#[doc = $more])*
        #[derive(Clone, Copy, Debug)]
        pub struct $law;

        $crate::program_block! { state $state { $($fields)* } parameters $parameters { $($list)* } }

        impl $crate::Law for $law {
            fn description(&self) -> $crate::law::LawDescription {
                $crate::law::LawDescription {
                    name: $name.into(),
                    summary: $summary.trim().into(),
                    kind: <$crate::law_input!($kind) as $crate::law::LawInput>::KIND,
                    state: <$state as $crate::declare::Block>::state(),
                    parameters: <$state as $crate::declare::Block>::parameters($crate::declare::Units::OfLaws),
                    lines: decide::LINES + <$state as $crate::Bundle>::FIELDS.len() as u32,
                }
            }

            fn decide(&self, event: &[u64], parameters: &[u64], state: &mut [u8], output: &mut [u64]) {
                let event = <$crate::law_input!($kind) as $crate::Bundle>::read_words(event);
                let parameters = <$parameters as $crate::Bundle>::read_words(parameters);
                let mut fields = <$state as $crate::Bundle>::load(state);
                let mut decision = $crate::law::LawInput::first(&event);
                decide(&event, &parameters, &mut fields, &mut decision);
                $crate::Bundle::store(&fields, state);
                $crate::Bundle::write_words(&decision, output);
            }

            fn graph(&self, lowering: $crate::Lowering) -> Result<$crate::Graph, $crate::RecordError> {
                $crate::law::record_law::<$crate::law_input!($kind), $parameters, $state>(lowering, decide::record)
            }
        }
    };
}

/// The event of laws of this kind.
#[doc(hidden)]
#[macro_export]
macro_rules! law_input {
    (control) => {
        $crate::law::ControlInput
    };
    (schedule) => {
        $crate::law::ScheduleInput
    };
    (paths) => {
        $crate::law::PathInput
    };
    ($other:ident) => {
        compile_error!("a law is for control, schedule or paths")
    };
}

/// Declares the state and the parameters of a program.
#[doc(hidden)]
#[macro_export]
macro_rules! program_block {
    (
        state $state:ident {
            $($(#[$field_meta:meta])* $field:ident: $width:tt $(= $initial:tt)? $(due $due:ident)?),* $(,)?
        }
        parameters $parameters:ident {
            $(#[doc = $help:literal] $parameter:ident: $bits:literal = $default:literal $($unit:ident)?
                $([$min:literal..=$max:literal])?),* $(,)?
        }
    ) => {
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

        impl $crate::declare::Block for $state {
            fn state() -> Vec<$crate::StateField> {
                vec![$($crate::StateField {
                    name: stringify!($field).into(),
                    bits: $crate::declare::bits::<$crate::program_type!($width)>(),
                    initial: $crate::program_initial!($($initial)?),
                    due: $crate::program_due!($($due)?),
                },)*]
            }

            fn parameters(units: $crate::declare::Units) -> Vec<$crate::Parameter> {
                let _ = units;
                vec![$($crate::declare::parameter(
                    (stringify!($parameter), $help.trim(), $bits),
                    (units, $crate::program_unit!($($unit)?)),
                    $default,
                    $crate::program_bounds!($($min, $max)?),
                ),)*]
            }
        }
    };
}

/// Returns the unit of a parameter as text.
#[doc(hidden)]
#[macro_export]
macro_rules! program_unit {
    () => {
        ""
    };
    (ns) => {
        "ns"
    };
    (us) => {
        "us"
    };
    (ms) => {
        "ms"
    };
    (s) => {
        "s"
    };
    (mbps) => {
        "mbps"
    };
    (gbps) => {
        "gbps"
    };
    ($other:ident) => {
        compile_error!(concat!("`", stringify!($other), "` is no unit of a parameter: use ns, us, ms, s, mbps or gbps"))
    };
}

/// The state of a program and its parameters, as descriptions list them.
#[doc(hidden)]
pub trait Block {
    /// Returns the fields of the state.
    fn state() -> Vec<crate::StateField>;

    /// Returns the parameters, whose times and rates have these units.
    fn parameters(units: Units) -> Vec<crate::Parameter>;
}

/// Units in which a program gets times and rates.
#[doc(hidden)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Units {
    /// Ticks of 160 ns, and bytes per 65,536 cycles of 10 ns.
    OfTransports,
    /// Nanoseconds, and units of 65,536 bit/s.
    OfLaws,
}

/// The type of a field: `flag`, or a number of bits.
#[doc(hidden)]
#[macro_export]
macro_rules! program_type {
    (flag) => { bool };
    ($bits:literal) => { $crate::U<$bits> };
}

/// The credit scheme with this name.
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
        compile_error!("expected a scheme: `window`, `rate` or `token`")
    };
}

/// The receiver with this name; without a name, one that places packets out of order.
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
        compile_error!("expected `places` or `drops`: what the receiver does with out-of-order packets")
    };
}

/// An initial value: zero if nothing is given, a number, or the name of a parameter.
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

/// The kind of deadline with this name.
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
        compile_error!("expected `due time` or `due sent`")
    };
}

/// The explicit bounds of a parameter, if it has any.
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

/// Builds a parameter from its declaration: name, help and width; units; default; bounds.
///
/// # Panics
/// When the unit is none of [`program_unit!`](crate::program_unit!).
#[doc(hidden)]
pub fn parameter(
    (name, help, bits): (&'static str, &'static str, u8),
    (units, unit): (Units, &str),
    default: u64,
    bounds: Option<(u64, u64)>,
) -> crate::Parameter {
    let (time, rate) = match units {
        Units::OfTransports => (Unit::Time, Unit::Rate),
        Units::OfLaws => (Unit::Nanoseconds, Unit::Speed),
    };
    let (unit, scale) = match unit {
        "" => (Unit::Count, 1),
        "ns" => (time, 1),
        "us" => (time, 1_000),
        "ms" => (time, 1_000_000),
        "s" => (time, 1_000_000_000),
        "mbps" => (rate, 1_000_000),
        "gbps" => (rate, 1_000_000_000),
        other => unreachable!("`{other}` is refused when the program is compiled"),
    };
    let scaled = |value: u64| value.saturating_mul(scale);
    let (min, max) = bounds.map_or((least(unit), largest(unit, bits)), |(min, max)| (scaled(min), scaled(max)));
    crate::Parameter { name: name.into(), help: help.into(), bits, unit, default: scaled(default), min, max }
}

/// Returns the least value of a parameter without bounds: one, or one unit of times.
const fn least(unit: Unit) -> u64 {
    match unit {
        Unit::Count | Unit::Rate | Unit::Speed | Unit::Nanoseconds => 1,
        Unit::Time => crate::interface::TICK_NS,
    }
}

/// Returns the maximum of a parameter of `bits` bits.
const fn largest(unit: Unit, bits: u8) -> u64 {
    let word = crate::fields::mask(bits);
    match unit {
        Unit::Count => word,
        Unit::Time => (word - 1).saturating_mul(crate::interface::TICK_NS),
        Unit::Rate => (word - 1).saturating_mul(390_625) / 32,
        Unit::Nanoseconds => word - 1,
        Unit::Speed => (word - 1).saturating_mul(crate::interface::SPEED_BPS),
    }
}
