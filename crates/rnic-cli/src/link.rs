//! The simulated link on which `perf` and `demo` measure, and the transport options chosen for it.
//!
//! A transport's defaults suit the network in its paper. On sockets, rnic-host sets values that suit software
//! processes; this module sets values that suit a single link, for options that the user has not set:
//!
//! - `rto_high` follows its definition (IRN section 4.1): the time for the longest path and one full buffer, in this
//!   network.
//! - `cap_packets`, for transports that have a cap, is at least twice the number of packets that fill the link: while
//!   a missing packet is recovered, a round trip's worth of packets waits behind it.
//!
//! Go-back-N keeps its 320 microseconds: it acknowledges complete messages, or every 64 packets, and a timeout of one
//! round trip would treat packets that are still in flight as lost.

use rnic_base::{BitRate, Duration, Probability};
use rnic_fabric::Plan;

use crate::failure::Failure;

/// A link to measure on, and the transport that uses it.
#[derive(Clone, Debug)]
pub struct Link<'l> {
    /// Bit rate of the link.
    pub rate: BitRate,
    /// Propagation delay, in each direction.
    pub delay: Duration,
    /// Probability that a packet is lost, in each direction.
    pub loss: Probability,
    /// Probability that a packet is overtaken by later ones, in each direction.
    pub reorder: Probability,
    /// Payload bytes of a full packet.
    pub mtu: u32,
    /// Name of the transport.
    pub transport: &'l str,
    /// Options of the transport that the user has set.
    pub options: Vec<(&'l str, &'l str)>,
}

impl Link<'_> {
    /// Returns a plan for two hosts and this link, with `workload` and other tables as TOML.
    ///
    /// # Errors
    /// When the plan is invalid, with the error text of the plan reader.
    pub fn plan(&self, name: &str, payload: &str, extra_toml: &str) -> Result<Plan, Failure> {
        let Self { rate, delay, mtu, .. } = self;
        let text = format!(
            "name = \"{name}\"\nmtu = {mtu}\npayload = \"{payload}\"\n[topology]\nkind = \"point-to-point\"\n\
             [links]\nrate = \"{rate}\"\ndelay = \"{delay}\"\n[transport]\nname = \"irn\"\n{}{}{extra_toml}",
            fault("drop", self.loss, ""),
            fault("reorder", self.reorder, DISPLACEMENT),
        );
        let mut overrides = vec![("transport.name".to_owned(), self.transport.to_owned())];
        overrides.extend(self.options.iter().map(|(key, value)| (format!("transport.{key}"), (*value).to_owned())));
        overrides.extend(self.fitted_options().into_iter().map(|(key, value)| (format!("transport.{key}"), value)));
        let overrides: Vec<(&str, &str)> = overrides.iter().map(|(key, value)| (&**key, &**value)).collect();
        Plan::from_toml_with(&text, &overrides, &mut |_| Err("no files here".to_owned())).map_err(|error| {
            let text = error.to_string();
            Failure::input(text.strip_prefix("plan: ").unwrap_or(&text))
        })
    }

    /// Returns options that suit the transport to the link; none if the transport cannot be created, for which the
    /// plan reader reports the reason.
    fn fitted_options(&self) -> Vec<(&'static str, String)> {
        let Ok(profile) = rnic_transports::select(self.transport, self.options.iter().copied()) else {
            return Vec::new();
        };
        let is_open = |name: &str| {
            let has = profile.options().any(|(spec, _)| spec.name == name);
            has && !self.options.iter().any(|(given, _)| *given == name)
        };
        let mut fitted_options = Vec::new();
        if is_open("rto_high") {
            fitted_options.push(("rto_high", "auto".to_owned()));
        }
        if let Some(cap) = profile.cap_packets.filter(|_| is_open("cap_packets")) {
            let packets = self.rate.bytes_in(self.delay.saturating_mul(2)).div_ceil(u64::from(self.mtu));
            fitted_options.push(("cap_packets", (2 * packets).max(cap.into()).to_string()));
        }
        fitted_options
    }
}

fn fault(kind: &str, probability: Probability, more: &str) -> String {
    if probability.is_never() {
        return String::new();
    }
    format!("[[fault]]\nkind = \"{kind}\"\nprobability = \"{probability}\"\n{more}")
}

/// Default rate, typical of links in today's data centres.
pub const RATE: BitRate = BitRate::gbps(100);
/// Default delay: the longest path of IRN's default network (section 4.1), six links of two microseconds.
pub const DELAY: Duration = Duration::from_us(12);
/// Number of later packets that overtake a reordered packet: three, as on sockets.
const DISPLACEMENT: &str = "displacement = 3\n";

#[cfg(test)]
mod tests {
    use super::*;

    fn link<'l>(transport: &'l str, options: &[(&'l str, &'l str)]) -> Link<'l> {
        let (loss, reorder) = (Probability::ratio(1, 100), Probability::NEVER);
        Link { rate: RATE, delay: DELAY, loss, reorder, mtu: 4096, transport, options: options.to_vec() }
    }

    #[test]
    fn the_default_cap_grows_with_the_link_and_given_options_are_kept() {
        assert_eq!(link("irn", &[]).fitted_options()[1], ("cap_packets", "148".to_owned()));
        let short = Link { delay: Duration::from_us(1), ..link("irn", &[]) };
        assert_eq!(short.fitted_options()[1], ("cap_packets", "110".to_owned()), "the cap is below the default");
        assert!(link("irn", &[("cap_packets", "7"), ("rto_high", "1ms")]).fitted_options().is_empty());
        assert!(link("roce-gbn", &[]).fitted_options().is_empty());
    }

    #[test]
    fn plans_contain_the_given_options_and_faults() {
        let plan = link("irn", &[("rto_low", "50us")]).plan("x", "none", MANUAL).expect("a sound plan");
        let set = |name: &str| plan.transport.options().find(|(spec, _)| spec.name == name).expect("an option").1;
        assert_eq!((set("rto_low"), plan.faults.len()), (Duration::from_us(50).as_ps(), 1));
        assert!(set("rto_high") < Duration::from_us(320).as_ps(), "rto_high is not fitted to the link");
        for (transport, options, says) in
            [("quic", vec![], "unknown transport `quic`"), ("irn", vec![("rto_high", "5KB")], "rto_high")]
        {
            let failure = link(transport, &options).plan("x", "none", MANUAL).expect_err("no plan").to_string();
            assert!(failure.contains(says) && failure.starts_with("rnic: transport"), "{failure}");
        }
    }

    const MANUAL: &str = "[workload]\nkind = \"manual\"\n";
}
