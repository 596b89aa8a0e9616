//! Settings of the process, and messages for its user.

use std::fmt::Display;
use std::sync::OnceLock;

use rnic_host::stream::StreamConfig;
use rnic_host::{Settings, TransportChoice, print_message};

/// Returns the settings of the process; `None` if they are invalid, which has then been reported: the library then does
/// nothing.
pub(crate) fn settings() -> Option<&'static Settings> {
    static SETTINGS: OnceLock<Option<Settings>> = OnceLock::new();
    let read = || {
        let settings = Settings::from_environment().inspect_err(|error| print_message(format!("{error}; using TCP")));
        settings.ok()
    };
    SETTINGS.get_or_init(read).as_ref()
}

/// Returns the settings of streams: the transport that the user has named, or [`TRANSPORT`].
///
/// # Errors
/// When an option is invalid for it, as text.
pub(crate) fn stream_config(settings: &Settings) -> Result<StreamConfig, String> {
    let choice = if settings.names_transport {
        settings.transport_choice().map_err(|error| error.to_string())?
    } else {
        let options: Vec<_> = settings.options.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        TransportChoice::named(TRANSPORT, &options).map_err(|error| error.to_string())?
    };
    Ok(StreamConfig { connect_timeout: CONNECT_TIMEOUT, ..StreamConfig::over(choice) })
}

/// Prints a message, unless the user has disabled messages.
pub(crate) fn note(text: impl Display) {
    if !settings().is_some_and(|settings| settings.quiet) {
        print_message(text);
    }
}

/// Default transport of sockets.
const TRANSPORT: &str = "tonic-new-reno";

/// Time limit for establishing a stream; after it the connection uses plain TCP. A host without this library answers
/// within a round trip, unless it discards packets to closed ports.
pub(crate) const CONNECT_TIMEOUT: rnic_base::Duration = rnic_base::Duration::from_ms(1_500);
