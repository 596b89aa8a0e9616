//! An engine and its memory, with a check of every access.

use rnic_engine::*;
use rnic_wire::{Headers, Qpn};

/// Bytes of memory of one node. There are gaps between the regions, which belong to no region.
pub const MEMORY: usize = 1 << 17;

/// A registered region, as the checker knows it.
#[derive(Clone, Copy, Debug)]
pub struct Region {
    pub region: MemoryRegion,
    pub key: u32,
}

impl Region {
    /// Returns the address and key with which a peer accesses `offset` in the region.
    pub fn remote(&self, offset: u64) -> RemoteMemory {
        RemoteMemory { addr: self.region.addr + offset, rkey: self.key }
    }

    pub fn sge(&self, offset: u64, len: u32) -> Sge {
        Sge { addr: self.region.addr + offset, len, lkey: self.key }
    }
}

/// Purpose of each region of a protection domain, by index.
pub const LOCAL: usize = 0;
pub const WRITE: usize = 1;
pub const READ: usize = 2;
pub const ATOMIC: usize = 3;
pub const SOURCE: usize = 4;
pub const INVALIDATE: usize = 5;
const RIGHTS: [Access; 6] = [
    Access::LOCAL_WRITE,
    Access::LOCAL_WRITE.union(Access::REMOTE_WRITE),
    Access::REMOTE_READ,
    Access::LOCAL_WRITE.union(Access::REMOTE_ATOMIC),
    Access::empty(),
    Access::LOCAL_WRITE.union(Access::REMOTE_WRITE).union(Access::REMOTE_INVALIDATE),
];
/// Bytes of a region; the gaps between regions have the same size.
const REGION: u64 = 4_096;

/// A protection domain with a region of each kind.
#[derive(Clone, Copy, Debug)]
pub struct Domain {
    pub pd: PdId,
    pub regions: [Region; 6],
}

pub struct Node {
    pub engine: Engine,
    pub memory: Vec<u8>,
    pub cq: CqId,
    pub domains: Vec<Domain>,
    /// Protection domain that each queue pair belongs to, by index.
    pub owners: Vec<(Qpn, usize)>,
}

impl Node {
    pub fn new(secret: u64) -> Self {
        let mut engine = Engine::new(EngineConfig { secret, ..EngineConfig::default() });
        let cq = engine.objects_mut().create_cq(1 << 20).expect("a legal size");
        Self { engine, memory: vec![0; MEMORY], cq, domains: Vec::new(), owners: Vec::new() }
    }

    /// Creates a protection domain with its regions; returns its index.
    pub fn add_domain(&mut self) -> usize {
        let pd = self.engine.objects_mut().create_pd().expect("a protection domain");
        let first = self.domains.len() as u64 * 6;
        let regions = [0u64, 1, 2, 3, 4, 5].map(|index| {
            let local = (first + index) * 2 * REGION + 64;
            let addr = 0x7000_0000_0000 + (first + index) * 0x10_0000;
            let region = MemoryRegion { pd, addr, len: REGION, local, access: RIGHTS[index as usize] };
            Region { region, key: self.engine.objects_mut().register(region).expect("a legal region").0 }
        });
        self.domains.push(Domain { pd, regions });
        self.domains.len() - 1
    }

    /// Registers the region that a peer may invalidate again, in case it was invalidated.
    pub fn renew(&mut self, domain: usize) {
        let Region { region, key } = self.domains[domain].regions[INVALIDATE];
        let _ = self.engine.objects_mut().deregister(Key(key));
        let key = self.engine.objects_mut().register(region).expect("a legal region").0;
        self.domains[domain].regions[INVALIDATE] = Region { region, key };
    }

    fn domain_of(&self, qpn: Qpn) -> Option<&Domain> {
        let owner = self.owners.iter().find(|(number, _)| *number == qpn)?;
        Some(&self.domains[owner.1])
    }

    /// Receives a packet and checks where its payload is placed.
    pub fn receive(&mut self, now: rnic_base::Time, transmit: &Transmit, meta: RxMeta, payload: &[u8]) -> RxOutcome {
        let packet = transmit.packet;
        let domain = self.domain_of(packet.dest_qpn).copied();
        let needs = match packet.headers {
            Headers::Write { .. } => Access::LOCAL_WRITE | Access::REMOTE_WRITE,
            _ => Access::LOCAL_WRITE,
        };
        let mut dma = CheckedDma { memory: &mut self.memory, domain, needs, payload };
        self.engine.receive(now, Arrival::Roce(transmit.format, &packet, meta), &mut dma)
    }

    /// Returns the next packet with its payload, which must come from memory that may be sent.
    pub fn transmit(&mut self, now: rnic_base::Time) -> Option<(Transmit, Vec<u8>)> {
        let transmit = *self.engine.transmit(now).and_then(Departure::roce)?;
        let answers = matches!(transmit.kind, TransmitKind::Response | TransmitKind::ResponseRetransmission);
        let needs = if answers { Access::REMOTE_READ } else { Access::empty() };
        let mut payload = Vec::new();
        for segment in self.engine.segments() {
            let domain = self.domain_of(transmit.from).expect("the queue pair is known");
            check(Some(domain), *segment, needs);
            payload.extend_from_slice(&self.memory[segment.local as usize..][..segment.len as usize]);
        }
        assert_eq!(payload.len(), transmit.packet.payload_len as usize, "wrong segment lengths");
        Some((transmit, payload))
    }
}

/// Panics when `segment` does not lie in a region of `domain` that grants `needs`.
fn check(domain: Option<&Domain>, segment: Segment, needs: Access) {
    let domain = domain.expect("memory is accessed only for existing queue pairs");
    let granted = |known: &Region| {
        let Region { region, .. } = known;
        let end = segment.local.checked_add(u64::from(segment.len));
        region.local <= segment.local
            && end.is_some_and(|end| end <= region.local + region.len)
            && region.access.contains(needs)
    };
    assert!(domain.regions.iter().any(granted), "{segment:?} is not granted for {needs:?}");
}

struct CheckedDma<'a> {
    memory: &'a mut [u8],
    domain: Option<Domain>,
    needs: Access,
    payload: &'a [u8],
}

impl CheckedDma<'_> {
    fn word(&mut self, local: u64, needs: Access) -> &mut [u8; 8] {
        check(self.domain.as_ref(), Segment { local, len: 8 }, needs);
        self.memory[local as usize..].first_chunk_mut().expect("eight bytes")
    }
}

impl Dma for CheckedDma<'_> {
    fn place(&mut self, offset: u32, target: Segment) -> Result<(), MemoryFault> {
        check(self.domain.as_ref(), target, self.needs);
        let from = &self.payload[offset as usize..][..target.len as usize];
        self.memory[target.local as usize..][..target.len as usize].copy_from_slice(from);
        Ok(())
    }

    fn store(&mut self, local: u64, value: u64) -> Result<(), MemoryFault> {
        *self.word(local, Access::LOCAL_WRITE) = value.to_ne_bytes();
        Ok(())
    }

    fn compare_swap(&mut self, local: u64, compare: u64, swap: u64) -> Result<u64, MemoryFault> {
        assert!(local.is_multiple_of(8), "atomics are aligned");
        let word = self.word(local, Access::REMOTE_ATOMIC);
        let original = u64::from_ne_bytes(*word);
        if original == compare {
            *word = swap.to_ne_bytes();
        }
        Ok(original)
    }

    fn fetch_add(&mut self, local: u64, add: u64) -> Result<u64, MemoryFault> {
        assert!(local.is_multiple_of(8), "atomics are aligned");
        let word = self.word(local, Access::REMOTE_ATOMIC);
        let original = u64::from_ne_bytes(*word);
        *word = original.wrapping_add(add).to_ne_bytes();
        Ok(original)
    }
}
