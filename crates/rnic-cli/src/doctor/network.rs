//! Checks of addresses, ports and sockets.

use std::fs;
use std::net::IpAddr;
use std::path::Path;

use rnic_base::Bytes;
use rnic_host::probe::{self, RocePort};

use super::{Check, Gid};

/// Returns the addresses that programs can use, by GID index.
pub fn gids() -> Vec<Gid> {
    let addresses = rnic_host::local_addresses().unwrap_or_default();
    let gid = |(index, address): (usize, &rnic_host::LocalAddress)| Gid {
        index,
        gid: match address.ip {
            IpAddr::V4(ip) => format!("::ffff:{ip}"),
            IpAddr::V6(ip) => ip.to_string(),
        },
        address: address.ip.to_string(),
        interface: address.interface.clone(),
        mtu_bytes: address.mtu_bytes,
        wire_mtu_bytes: probe::wire_mtu(address),
    };
    addresses.iter().enumerate().map(gid).collect()
}

/// Runs the checks of the network.
pub fn checks(gids: &[Gid]) -> Vec<Check> {
    vec![addresses(gids), port(), offloads(), receive_buffer()]
}

fn addresses(gids: &[Gid]) -> Check {
    const NAME: &str = "addresses";
    let low_mtu: Vec<&str> =
        gids.iter().filter(|gid| gid.wire_mtu_bytes.is_none()).map(|gid| gid.address.as_str()).collect();
    if gids.is_empty() {
        return Check::fails(NAME, "no interface is up", "bring an interface up, for example with `ip link set lo up`");
    }
    if !low_mtu.is_empty() {
        let advice = "the MTU of their interfaces is too small; use other addresses or raise the MTU";
        return Check::note(NAME, format!("not usable: {}", low_mtu.join(", ")), advice);
    }
    let is_not_loopback = |gid: &&Gid| gid.address.parse::<IpAddr>().is_ok_and(|ip| !ip.is_loopback());
    let Some(first) = gids.iter().find(is_not_loopback) else {
        let advice =
            "this is sufficient for programs on this machine, but libfabric and Open MPI ignore loopback addresses";
        return Check::note(NAME, "loopback only", advice);
    };
    Check::ok(NAME, format!("{} GIDs; the first is {} on {}", gids.len(), first.address, first.interface))
}

fn port() -> Check {
    const NAME: &str = "UDP port 4791";
    match probe::roce_port() {
        RocePort::Free => Check::ok(NAME, "free: packets are sent from it, and captures show them as RoCEv2"),
        RocePort::Shared => Check::ok(NAME, format!("shared by processes of this user{}", port_owners())),
        RocePort::Taken(error) => Check::note(
            NAME,
            format!("in use{}: {error}", port_owners()),
            "connections work; packets are sent from other ports, so captures are read as RoCEv2 with tshark -d \
             udp.port==PORT,infiniband, where PORT is printed when the capture starts",
        ),
    }
}

/// Returns text that names the processes with a socket on port 4791, as far as this process has permission to see
/// them.
fn port_owners() -> String {
    let inodes: Vec<String> = ["/proc/net/udp", "/proc/net/udp6"]
        .iter()
        .filter_map(|path| fs::read_to_string(path).ok())
        .flat_map(|text| text.lines().filter_map(socket_inode).collect::<Vec<_>>())
        .collect();
    let processes = fs::read_dir("/proc").map_or_else(|_| Vec::new(), |entries| entries.flatten().collect());
    let holds = |folder: &Path| {
        let descriptors = fs::read_dir(folder.join("fd")).into_iter().flatten().flatten();
        descriptors.filter_map(|entry| fs::read_link(entry.path()).ok()).any(|target| {
            let target = target.to_string_lossy();
            target
                .strip_prefix("socket:[")
                .and_then(|rest| rest.strip_suffix(']'))
                .is_some_and(|inode| inodes.iter().any(|own| own == inode))
        })
    };
    let names: Vec<String> = processes
        .iter()
        .filter(|entry| entry.file_name().to_string_lossy().bytes().all(|byte| byte.is_ascii_digit()))
        .filter(|entry| holds(&entry.path()))
        .take(PROCESSES_MAX)
        .map(|entry| {
            let name = fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
            format!("{} ({})", name.trim(), entry.file_name().to_string_lossy())
        })
        .collect();
    if names.is_empty() { String::new() } else { format!(" by {}", names.join(", ")) }
}

/// Returns the socket inode from a line of `/proc/net/udp` if its local port is 4791.
fn socket_inode(line: &str) -> Option<String> {
    let mut words = line.split_whitespace();
    let port = words.nth(1)?.rsplit_once(':')?.1;
    (port == ROCE_PORT_HEX).then(|| words.nth(7).map(str::to_owned))?
}

fn offloads() -> Check {
    const NAME: &str = "offloads";
    match probe::socket() {
        Err(error) => Check::fails(
            NAME,
            format!("cannot open a UDP socket: {error}"),
            "allow UDP sockets in the sandbox (seccomp, address families)",
        ),
        Ok(probe) => match (probe.segmentation, probe.receive_offload) {
            (true, true) => {
                Check::ok(NAME, "the kernel supports segmentation and receive offload (UDP_SEGMENT, UDP_GRO)")
            }
            (sends, receives) => {
                let word = |has: bool| if has { "yes" } else { "no" };
                let found = format!("UDP_SEGMENT {}, UDP_GRO {}", word(sends), word(receives));
                Check::note(
                    NAME,
                    found,
                    "packets are sent or received one by one, at a fraction of the rate; Linux 5.0 and later have \
                     both",
                )
            }
        },
    }
}

fn receive_buffer() -> Check {
    const NAME: &str = "receive buffer";
    let Ok(probe) = probe::socket() else { return Check::note(NAME, "unknown", "see the check \"offloads\"") };
    let (requested, granted) = (probe.receive_buffer_asked_bytes, probe.receive_buffer_granted_bytes);
    let size = |bytes: usize| Bytes::new(bytes as u64).to_string();
    if granted >= requested {
        return Check::ok(NAME, format!("{} granted", size(granted)));
    }
    let found = format!("{} of {} granted (net.core.rmem_max)", size(granted), size(requested));
    Check::note(
        NAME,
        found,
        format!("windows are smaller, so transfers are slower; run sysctl -w net.core.rmem_max={requested}"),
    )
}

/// Port 4791 as the kernel writes it in `/proc/net/udp`.
const ROCE_PORT_HEX: &str = "12B7";
/// Maximum number of processes that are named.
const PROCESSES_MAX: usize = 5;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_socket_table_is_parsed() {
        let line =
            "  123: 0100007F:12B7 00000000:0000 07 00000000:00000000 00:00000000 00000000  1000        0 98765 2 0 0";
        assert_eq!(socket_inode(line).as_deref(), Some("98765"));
        assert_eq!(socket_inode(&line.replace("12B7", "12B8")), None);
        assert_eq!(socket_inode("  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt"), None);
    }

    #[test]
    fn addresses_are_rated_by_reachability_and_mtu() {
        let gid = |address: &str, wire_mtu_bytes| Gid {
            index: 0,
            gid: String::new(),
            address: address.to_owned(),
            interface: "eth0".to_owned(),
            mtu_bytes: 1_500,
            wire_mtu_bytes,
        };
        use crate::doctor::State;
        let state = |gids: &[Gid]| addresses(gids).state;
        assert_eq!(state(&[]), State::Fails);
        assert_eq!(state(&[gid("127.0.0.1", Some(1_024))]), State::Note);
        assert_eq!(state(&[gid("192.0.2.1", Some(1_024)), gid("127.0.0.1", Some(1_024))]), State::Ok);
        assert_eq!(state(&[gid("192.0.2.1", None)]), State::Note);
    }
}
