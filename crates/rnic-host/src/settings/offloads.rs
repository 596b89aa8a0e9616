//! The environment's settings of kernel offloads and of the shared link, for programs that open a NIC directly.

use super::{Settings, SettingsError, VARIABLES};
use crate::config::NicConfig;

impl NicConfig {
    /// Applies those variables of the environment that concern the machine, as defined by the table
    /// ([`crate::settings::VARIABLES`]): `RNIC_SEGMENTATION=off`, `RNIC_RECEIVE_OFFLOAD=off` disable kernel offloads,
    /// `RNIC_LINK_RATE` and `RNIC_WEIGHT` let the NIC share a link. The other variables are for unmodified programs; a
    /// program that opens a NIC directly sets the rest in its code.
    ///
    /// # Errors
    /// When a variable has an invalid value.
    pub fn with_environment(self) -> Result<Self, SettingsError> {
        if crate::sys::has_more_rights_than_caller() {
            return Ok(self);
        }
        self.with_variables(|name| std::env::var_os(name).map(|value| value.to_string_lossy().into_owned()))
    }

    fn with_variables(self, value_of: impl Fn(&str) -> Option<String>) -> Result<Self, SettingsError> {
        let Self { segmentation, receive_offload, .. } = self;
        let mut settings = Settings { segmentation, receive_offload, ..Settings::default() };
        for variable in VARIABLES.iter().filter(|variable| READ.contains(&variable.name)) {
            settings.put(variable, &value_of(variable.name).unwrap_or_default())?;
        }
        let Settings { segmentation, receive_offload, link_rate, weight, .. } = settings;
        let mut share = self.share;
        if link_rate.is_some() || weight.is_some() {
            let present = share.get_or_insert_default();
            present.link_rate = link_rate.or(present.link_rate);
            present.weight = weight.unwrap_or(present.weight);
        }
        Ok(Self { segmentation, receive_offload, share, ..self })
    }
}

/// The variables that [`NicConfig::with_environment`] reads.
const READ: [&str; 4] = ["RNIC_SEGMENTATION", "RNIC_RECEIVE_OFFLOAD", "RNIC_LINK_RATE", "RNIC_WEIGHT"];

#[cfg(test)]
mod tests {
    use rnic_base::BitRate;

    use super::*;
    use crate::share::ShareConfig;

    fn read(from: &NicConfig, variables: &[(&str, &str)]) -> Result<(bool, bool), String> {
        let value_of =
            |name: &str| variables.iter().find(|(set, _)| *set == name).map(|(_, value)| (*value).to_owned());
        let config = from.clone().with_variables(value_of).map_err(|error| error.to_string())?;
        Ok((config.segmentation, config.receive_offload))
    }

    #[test]
    fn offload_variables_override_the_configuration_when_set() {
        let (both, none) =
            (NicConfig::default(), NicConfig { segmentation: false, receive_offload: false, ..NicConfig::default() });
        assert_eq!(read(&both, &[("RNIC_LOSS", "1%"), ("RNIC_RECEIVE_OFFLOAD", "")]), Ok((true, true)));
        assert_eq!(read(&none, &[]), Ok((false, false)));
        assert_eq!(read(&both, &[("RNIC_SEGMENTATION", "off")]), Ok((false, true)));
        assert_eq!(read(&both, &[("RNIC_RECEIVE_OFFLOAD", "off")]), Ok((true, false)));
        assert_eq!(read(&none, &[("RNIC_SEGMENTATION", "on"), ("RNIC_RECEIVE_OFFLOAD", "on")]), Ok((true, true)));
    }

    #[test]
    fn a_nic_shares_the_link_that_the_environment_names() {
        let with = |config: NicConfig, variables: &[(&str, &str)]| {
            let value_of =
                |name: &str| variables.iter().find(|(set, _)| *set == name).map(|(_, value)| (*value).to_owned());
            config.with_variables(value_of).expect("valid").share
        };
        assert_eq!(with(NicConfig::default(), &[]), None);
        let linked = ShareConfig { link_rate: Some(BitRate::gbps(2)), ..ShareConfig::default() };
        assert_eq!(with(NicConfig::default(), &[("RNIC_LINK_RATE", "2Gbps")]), Some(linked.clone()));
        let config = NicConfig { share: Some(linked.clone()), ..NicConfig::default() };
        assert_eq!(with(config, &[("RNIC_WEIGHT", "3")]), Some(ShareConfig { weight: 3, ..linked }));
    }

    #[test]
    fn errors_equal_those_of_the_settings() {
        for name in READ {
            let variables = [(name, "never")];
            let error = Settings::from_variables(variables).expect_err("invalid").to_string();
            assert_eq!(read(&NicConfig::default(), &variables), Err(error));
        }
    }
}
