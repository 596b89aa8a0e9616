//! Address of the remote end.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs};

use crate::failure::Failure;

/// The UDP port of RoCEv2.
pub const PORT: u16 = 4791;

/// Resolves an address in the forms that users write: `10.0.0.1`, `10.0.0.1:4791`, `::1`, `[::1]:4791`, `server:4791`.
///
/// # Errors
/// When it is not an address, or a name that cannot be resolved.
pub fn resolve(text: &str) -> Result<SocketAddr, Failure> {
    let without_brackets = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    if let Ok(ip) = without_brackets.parse::<IpAddr>() {
        return Ok(SocketAddr::new(ip, PORT));
    }
    let wrong = |why: String| Failure::input(format!("{text}: {why}"));
    if let Some((host, port)) = text.rsplit_once(':')
        && !host.is_empty()
        && port.bytes().all(|digit| digit.is_ascii_digit())
        && !has_port(text)
    {
        return Err(wrong("the port must be 0 to 65535".to_owned()));
    }
    let with_port = if has_port(text) { text.to_owned() } else { format!("{text}:{PORT}") };
    let found = with_port.to_socket_addrs().map_err(|error| wrong(error.to_string()))?.next();
    found.ok_or_else(|| wrong("the host name has no address".to_owned()))
}

fn has_port(text: &str) -> bool {
    text.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_accepted_in_many_notations() {
        let cases = [
            ("10.0.0.1", "10.0.0.1:4791"),
            ("10.0.0.1:99", "10.0.0.1:99"),
            ("::1", "[::1]:4791"),
            ("[::1]", "[::1]:4791"),
            ("[::1]:99", "[::1]:99"),
        ];
        for (written, expected) in cases {
            assert_eq!(resolve(written).expect("an address").to_string(), expected);
        }
        for wrong in ["", "10.0.0.1:99999", "10.0.0.1:", "no such host"] {
            let failure = resolve(wrong).expect_err("no address");
            assert!(failure.to_string().contains(wrong), "{failure}");
        }
    }
}
