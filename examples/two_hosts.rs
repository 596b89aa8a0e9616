//! Two hosts over UDP: one writes a megabyte into the memory of the other, through 1 % packet loss.
//!
//! `cargo run -p rnic-examples --bin two-hosts`. Both NICs live in this process, at two loopback addresses; on two
//! machines each program has one of them.

use std::error::Error;

use rnic_base::{Duration, Probability};
use rnic_engine::{Access, CqId, PdId, SendFlags, SendOp, SendRequest, WcStatus};
use rnic_host::{Connection, ConnectionConfig, ConnectionEvent, Impairment, Nic, NicConfig, Region, TransportChoice};

/// Service that the server listens on.
const SERVICE: u16 = 7_471;
/// Bytes of the message.
const MESSAGE_BYTES: usize = 1 << 20;

/// A NIC with the objects that every program creates first: protection domain, CQ and memory region.
struct Host {
    nic: Nic,
    pd: PdId,
    cq: CqId,
    memory: Region,
}

impl Host {
    /// Opens a NIC at `address`, whose packets are lost one in a hundred.
    fn open(address: &str) -> Result<Self, Box<dyn Error>> {
        let impairment = Impairment { loss: Probability::ratio(1, 100), ..Impairment::default() };
        let mut nic = Nic::open(NicConfig { impairment, ..NicConfig::at(address.parse()?) })?;
        let mut verbs = nic.verbs();
        let pd = verbs.create_pd()?;
        let cq = verbs.create_cq(16)?;
        let memory = verbs.register(pd, MESSAGE_BYTES, Access::all())?;
        Ok(Self { nic, pd, cq, memory })
    }

    /// Returns the settings of a connection by IRN.
    fn config(&self) -> Result<ConnectionConfig, Box<dyn Error>> {
        Ok(ConnectionConfig::new(self.pd, self.cq).with_transports(vec![TransportChoice::named("irn", &[])?]))
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let (mut client, mut server) = (Host::open("127.0.0.1:0")?, Host::open("127.0.0.2:0")?);
    let connection = connect(&mut client, &mut server)?;

    // The address and the key of the server's memory. Programs send them in their first message.
    let remote = server.memory.remote(0);
    for (index, byte) in client.nic.bytes_mut(&client.memory).iter_mut().enumerate() {
        *byte = (index * 7 + index / 251) as u8;
    }
    let sges = [client.memory.sge(0, MESSAGE_BYTES as u32)];
    let op = SendOp::Write { remote, immediate: None };
    let request = SendRequest { wr_id: 1, op, sges: &sges, flags: SendFlags::SIGNALED };
    client.nic.verbs().post_send(connection.qpn, &request)?;

    let completion = loop {
        // A program that has nothing else to do would call `wait` when `progress` returns false.
        client.nic.progress();
        server.nic.progress();
        if let Some(completion) = client.nic.verbs().poll_cq_one(client.cq) {
            break completion;
        }
    };
    if completion.status != WcStatus::Success {
        return Err(format!("the Write failed: {:?}", completion.status).into());
    }
    if client.nic.bytes(&client.memory) != server.nic.bytes(&server.memory) {
        return Err("the bytes differ".into());
    }
    let stats = client.nic.engine_stats();
    println!(
        "{MESSAGE_BYTES} bytes written by {}, every byte compared; {} packets sent, {} of them retransmitted",
        connection.transport, stats.packets_sent, stats.packets_retransmitted
    );
    Ok(())
}

/// Connects the client to the server; both sides are driven in turn.
fn connect(client: &mut Host, server: &mut Host) -> Result<Connection, Box<dyn Error>> {
    server.nic.listen(SERVICE, 1)?;
    let config = ConnectionConfig { timeout: Duration::from_secs(10), ..client.config()? };
    client.nic.start_connect(server.nic.local_addr(), SERVICE, &config)?;
    loop {
        client.nic.progress();
        server.nic.progress();
        if let Some(ConnectionEvent::Requested(request)) = server.nic.poll_connection_event() {
            let config = server.config()?;
            server.nic.accept(request.id, &config)?;
        }
        match client.nic.poll_connection_event() {
            Some(ConnectionEvent::Established(connection)) => return Ok(connection),
            Some(ConnectionEvent::Failed { error, .. }) => return Err(error.into()),
            _ => {}
        }
    }
}
