//! NVMe over Falcon between two NICs on UDP sockets: one serves a namespace from its memory, the other writes blocks
//! and reads them back.
//!
//! `cargo run -p rnic-examples --bin nvme`.

use std::error::Error;
use std::sync::Arc;

use rnic_base::{BitRate, Duration, Psn};
use rnic_engine::{
    Access, CqId, DeviceConfig, DeviceService, NamespaceConfig, NvmeInitiator, NvmeReads, NvmeRole, PdId, PeerId,
    QpAttributes, QpConnection, QpTiming, RemoteMemory, RnrTimer, SendFlags, SendOp, SendRequest, Service, Transport,
    WcStatus,
};
use rnic_host::{Nic, NicConfig, Region, TransportChoice};
use rnic_wire::Qpn;

/// Bytes of a block, as a power of two.
const BLOCK_LOG2: u32 = 9;
/// Bytes of the namespace.
const NAMESPACE_BYTES: usize = 1 << 20;
/// Number of the namespace.
const NAMESPACE_NUMBER: u16 = 1;
/// Bytes of a command.
const COMMAND_BYTES: usize = 64 << 10;

/// A NIC with the objects that every program creates first: protection domain, CQ and memory region.
struct Host {
    nic: Nic,
    pd: PdId,
    cq: CqId,
    memory: Region,
}

impl Host {
    fn open(address: &str) -> Result<Self, Box<dyn Error>> {
        let mut nic = Nic::open(NicConfig::at(address.parse()?))?;
        let mut verbs = nic.verbs();
        let pd = verbs.create_pd()?;
        let cq = verbs.create_cq(16)?;
        let memory = verbs.register(pd, NAMESPACE_BYTES, Access::all())?;
        Ok(Self { nic, pd, cq, memory })
    }

    /// Makes a queue pair that is an end of NVMe.
    fn create_qp(&mut self, role: NvmeRole) -> Result<Qpn, Box<dyn Error>> {
        let choice = TransportChoice::named("falcon", &[("ordering", "unordered")])?;
        let mut verbs = self.nic.verbs();
        let qpn = verbs.create_qp(&QpAttributes {
            pd: self.pd,
            send_cq: self.cq,
            recv_cq: self.cq,
            srq: None,
            max_send_wr: 16,
            max_recv_wr: 1,
            max_send_sge: 1,
            max_recv_sge: 1,
            signal_all: true,
            service: Service::ReliableConnection,
            transport: Arc::new(Transport::new(choice.profile)?),
            number: None,
            nvme: Some(role),
        })?;
        verbs.modify_to_init(qpn)?;
        Ok(qpn)
    }

    /// Connects a queue pair. Programs exchange the numbers by other means, as those of verbs do.
    fn connect(&mut self, qpn: Qpn, peer: PeerId, dest_qpn: Qpn) -> Result<(), Box<dyn Error>> {
        let min_rnr_timer = RnrTimer::at_least(Duration::from_us(100));
        let (rq_psn, mtu) = (Psn::new(1), 4_096);
        let connection = QpConnection { peer, dest_qpn, rq_psn, mtu, min_rnr_timer, max_dest_rd_atomic: 16 };
        let timing = QpTiming { sq_psn: Psn::new(1), retry_count: 7, rnr_retry: None, max_rd_atomic: 16 };
        let mut verbs = self.nic.verbs();
        verbs.modify_to_rtr(qpn, &connection)?;
        verbs.modify_to_rts(qpn, &timing)?;
        Ok(())
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let (mut client, mut server) = (Host::open("127.0.0.1:0")?, Host::open("127.0.0.2:0")?);

    // The emulated drive takes 20 us for a command and moves 10 Gbit/s; its blocks are in registered memory.
    let service = DeviceService { latency: Duration::from_us(20), bandwidth: BitRate::gbps(10) };
    let device = DeviceConfig { read: service, write: service, queue_depth: 32, block_log2: BLOCK_LOG2 };
    let namespace = server.nic.verbs().nvme().create_namespace(&NamespaceConfig {
        number: NAMESPACE_NUMBER,
        blocks: (NAMESPACE_BYTES >> BLOCK_LOG2) as u64,
        pd: server.pd,
        addr: server.memory.addr(),
        key: server.memory.key(),
        device,
    })?;
    let initiator = NvmeInitiator {
        namespace: NAMESPACE_NUMBER,
        block_log2: BLOCK_LOG2,
        reads: NvmeReads::Push,
        timeout: Duration::from_secs(5),
    };
    let client_qpn = client.create_qp(NvmeRole::Initiator(initiator))?;
    let server_qpn = server.create_qp(NvmeRole::Target(namespace))?;
    let (server_address, client_address) = (server.nic.local_addr(), client.nic.local_addr());
    let (server_peer, client_peer) =
        (client.nic.acquire_peer(server_address)?, server.nic.acquire_peer(client_address)?);
    client.connect(client_qpn, server_peer, server_qpn)?;
    server.connect(server_qpn, client_peer, client_qpn)?;

    for (index, byte) in client.nic.bytes_mut(&client.memory)[..COMMAND_BYTES].iter_mut().enumerate() {
        *byte = (index * 5 + index / 253) as u8;
    }
    // Byte addresses in the namespace: the command writes from its second half on, and is read back to another place.
    let remote = RemoteMemory { addr: (NAMESPACE_BYTES / 2) as u64, rkey: 0 };
    command(&mut client, &mut server, client_qpn, SendOp::Write { remote, immediate: None }, 0)?;
    command(&mut client, &mut server, client_qpn, SendOp::Read { remote }, COMMAND_BYTES)?;
    let (written, read) = client.nic.bytes(&client.memory)[..2 * COMMAND_BYTES].split_at(COMMAND_BYTES);
    if written != read || server.nic.bytes(&server.memory)[NAMESPACE_BYTES / 2..][..COMMAND_BYTES] != *written {
        return Err("the blocks differ".into());
    }
    println!(
        "{} blocks of 512 bytes written and read back over Falcon, every byte compared",
        COMMAND_BYTES >> BLOCK_LOG2
    );

    // A command beyond the namespace completes with a status by name, and the queue pair goes on.
    let remote = RemoteMemory { addr: NAMESPACE_BYTES as u64, rkey: 0 };
    match command(&mut client, &mut server, client_qpn, SendOp::Read { remote }, 0) {
        Err(error) => println!("a command beyond the end: {error}"),
        Ok(()) => return Err("a command beyond the end succeeded".into()),
    }
    command(&mut client, &mut server, client_qpn, SendOp::Read { remote: RemoteMemory { addr: 0, rkey: 0 } }, 0)
}

/// Does one command, whose data are at `at` in the client's memory, and drives both NICs until it completes.
fn command(client: &mut Host, server: &mut Host, qpn: Qpn, op: SendOp, at: usize) -> Result<(), Box<dyn Error>> {
    let sges = [client.memory.sge(at, COMMAND_BYTES as u32)];
    client.nic.verbs().post_send(qpn, &SendRequest { wr_id: 1, op, sges: &sges, flags: SendFlags::SIGNALED })?;
    loop {
        client.nic.progress();
        server.nic.progress();
        let Some(completion) = client.nic.verbs().poll_cq_one(client.cq) else { continue };
        return match completion.nvme_failure() {
            Some(failure) => Err(failure.to_string().into()),
            None if completion.status == WcStatus::Success => Ok(()),
            None => Err(format!("{:?}", completion.status).into()),
        };
    }
}
