//! The environment's settings of kernel offloads, for programs that open a NIC directly.

use super::{Settings, SettingsError, VARIABLES};
use crate::config::NicConfig;

impl NicConfig {
    /// Applies the kernel offload variables of the environment, as defined by the table
    /// ([`crate::settings::VARIABLES`]): `RNIC_SEGMENTATION=off` and `RNIC_RECEIVE_OFFLOAD=off` disable them. The other
    /// variables are for unmodified programs; a program that opens a NIC directly sets the rest in its code.
    ///
    /// # Errors
    /// When a variable has another value than `on` or `off`.
    pub fn with_environment(self) -> Result<Self, SettingsError> {
        if crate::sys::has_more_rights_than_caller() {
            return Ok(self);
        }
        self.with_offloads(|name| std::env::var_os(name).map(|value| value.to_string_lossy().into_owned()))
    }

    fn with_offloads(self, value_of: impl Fn(&str) -> Option<String>) -> Result<Self, SettingsError> {
        let Self { segmentation, receive_offload, .. } = self;
        let mut settings = Settings { segmentation, receive_offload, ..Settings::default() };
        for variable in VARIABLES.iter().filter(|variable| OFFLOADS.contains(&variable.name)) {
            settings.put(variable, &value_of(variable.name).unwrap_or_default())?;
        }
        let Settings { segmentation, receive_offload, .. } = settings;
        Ok(Self { segmentation, receive_offload, ..self })
    }
}

/// The variables that [`NicConfig::with_environment`] reads.
const OFFLOADS: [&str; 2] = ["RNIC_SEGMENTATION", "RNIC_RECEIVE_OFFLOAD"];

#[cfg(test)]
mod tests {
    use super::*;

    fn read(from: &NicConfig, variables: &[(&str, &str)]) -> Result<(bool, bool), String> {
        let value_of =
            |name: &str| variables.iter().find(|(set, _)| *set == name).map(|(_, value)| (*value).to_owned());
        let config = from.clone().with_offloads(value_of).map_err(|error| error.to_string())?;
        Ok((config.segmentation, config.receive_offload))
    }

    #[test]
    fn the_environment_decides_about_offloads_where_it_says_something() {
        let (both, none) =
            (NicConfig::default(), NicConfig { segmentation: false, receive_offload: false, ..NicConfig::default() });
        assert_eq!(read(&both, &[("RNIC_LOSS", "1%"), ("RNIC_RECEIVE_OFFLOAD", "")]), Ok((true, true)));
        assert_eq!(read(&none, &[]), Ok((false, false)));
        assert_eq!(read(&both, &[("RNIC_SEGMENTATION", "off")]), Ok((false, true)));
        assert_eq!(read(&both, &[("RNIC_RECEIVE_OFFLOAD", "off")]), Ok((true, false)));
        assert_eq!(read(&none, &[("RNIC_SEGMENTATION", "on"), ("RNIC_RECEIVE_OFFLOAD", "on")]), Ok((true, true)));
    }

    #[test]
    fn mistakes_are_told_as_unmodified_programs_are_told_them() {
        for name in OFFLOADS {
            let variables = [(name, "never")];
            let told = Settings::from_variables(variables).expect_err("neither on nor off").to_string();
            assert_eq!(read(&NicConfig::default(), &variables), Err(told));
        }
    }
}
