-- Falcon for Wireshark and tshark: PSP, Falcon's own headers, and those of RDMA and NVMe over Falcon.
--
--   wireshark -X lua_script:tools/wireshark/falcon.lua CAPTURE      (docs/captures.md has more)
--
-- Sources: "OCP Falcon Transport Protocol, Rev 0.9", section 7; "OCP RDMA over Falcon Transport, Rev 0.9" and "OCP NVMe
-- over Falcon Transport, Rev 0.9", section 8; PSP Architecture Specification. Where they are silent or disagree, this
-- reads what crates/rnic-wire/src/falcon.rs says. Runs on the Lua of Wireshark 3.6 to 4.6: no integer operators.

local falcon = Proto("falcon", "Falcon Transport Protocol")

falcon.prefs.flow_bits = Pref.uint("Bits of the flow index", 2, "Low bits of the flow label that number a flow")
falcon.prefs.in_clear = Pref.bool("Packets are in clear", false, "Read packets that have a key and a cipher, too")

local TYPES = {
    [0] = "Pull Request", [3] = "Pull Data", [5] = "Push Data", [6] = "Resync", [8] = "NACK", [9] = "BACK",
    [10] = "EACK",
}
local PROTOCOLS = { [2] = "RDMA", [3] = "NVMe" }
local CIPHERS = { [0] = "AES-GCM-128", [1] = "AES-GCM-256", [2] = "AES-GMAC-128", [3] = "AES-GMAC-256" }
local RESYNC_CODES = {
    [1] = "Target completes in error", [2] = "Local xLR", [3] = "Retransmission exhausted",
    [4] = "Transaction timed out", [5] = "Remote xLR", [6] = "Target not recoverable", [7] = "Target: invalid CID",
}
local NACK_CODES = {
    [1] = "Insufficient resources", [2] = "Receiver not ready", [4] = "xLR drop", [6] = "Complete in error",
    [7] = "Not recoverable", [8] = "Invalid CID",
}
local WINDOWS = { [0] = "Data", [1] = "Request" }
local OPCODES = {
    [0x00] = "SEND First", [0x01] = "SEND Middle", [0x02] = "SEND Last", [0x03] = "SEND Last with Immediate",
    [0x04] = "SEND Only", [0x05] = "SEND Only with Immediate", [0x06] = "WRITE First", [0x07] = "WRITE Middle",
    [0x08] = "WRITE Last", [0x09] = "WRITE Last with Immediate", [0x0a] = "WRITE Only",
    [0x0b] = "WRITE Only with Immediate", [0x0c] = "READ Request", [0x0d] = "READ Response First",
    [0x0e] = "READ Response Middle", [0x0f] = "READ Response Last", [0x10] = "READ Response Only",
    [0x12] = "ATOMIC Response", [0x13] = "ATOMIC Compare and Swap", [0x14] = "ATOMIC Fetch and Add",
    [0x16] = "SEND Last with Invalidate", [0x17] = "SEND Only with Invalidate", [0x64] = "UD SEND Only",
    [0x65] = "UD SEND Only with Immediate",
}
local NVME_TYPES = {
    [0] = "Write Request", [1] = "Write Data Request", [2] = "Write Data", [3] = "Write Completion",
    [4] = "Read Request", [5] = "Read Response",
}
-- Hundredths of milliseconds by code.
local WAITS = {
    [0] = 65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072,
    4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
}

local DEC, HEX = base.DEC, base.HEX
local f = {
    -- Where the packet travels.
    flow = ProtoField.uint32("falcon.flow", "Flow", DEC),
    psp = ProtoField.none("falcon.psp", "PSP"),
    next_header = ProtoField.uint8("falcon.psp.next_header", "Next header", DEC, { [252] = "Falcon" }),
    header_words = ProtoField.uint8("falcon.psp.more_words", "Header words after the first", DEC),
    crypt_offset = ProtoField.uint8("falcon.psp.crypt_offset", "Crypt offset, words", DEC, nil, 0x3f),
    sample = ProtoField.bool("falcon.psp.sample", "Sample", 8, nil, 0x80),
    drop = ProtoField.bool("falcon.psp.drop", "Drop", 8, nil, 0x40),
    cipher = ProtoField.uint8("falcon.psp.version", "Version", DEC, CIPHERS, 0x3c),
    has_cookie = ProtoField.bool("falcon.psp.has_cookie", "Cookie present", 8, nil, 0x02),
    spi = ProtoField.uint32("falcon.psp.spi", "Security parameters index", HEX),
    salt = ProtoField.uint32("falcon.psp.salt", "Vector: salt", HEX),
    timestamp = ProtoField.uint32("falcon.timestamp", "Vector: timestamp, 131.072 ns (T1, or T3)", DEC),
    cookie = ProtoField.uint64("falcon.psp.cookie", "Virtualization cookie", HEX),
    icv = ProtoField.bytes("falcon.psp.icv", "Check value"),
    encrypted = ProtoField.bytes("falcon.encrypted", "Encrypted"),
    -- Every packet.
    version = ProtoField.uint8("falcon.version", "Version", DEC, nil, 0xf0),
    cid = ProtoField.uint24("falcon.cid", "Connection", HEX),
    func = ProtoField.uint24("falcon.function", "Function", HEX),
    protocol = ProtoField.uint8("falcon.protocol", "Upper layer", DEC, PROTOCOLS, 0xe0),
    type = ProtoField.uint8("falcon.type", "Type", DEC, TYPES, 0x1e),
    ack_request = ProtoField.bool("falcon.ack_request", "Ack request", 8, nil, 0x01),
    data_base = ProtoField.uint32("falcon.data_base", "Data window base", DEC),
    request_base = ProtoField.uint32("falcon.request_base", "Request window base", DEC),
    -- Packets of a transaction.
    psn = ProtoField.uint32("falcon.psn", "PSN", DEC),
    rsn = ProtoField.uint32("falcon.rsn", "RSN", DEC),
    request_length = ProtoField.uint16("falcon.request_length", "Request length", DEC),
    resync_code = ProtoField.uint8("falcon.resync.code", "Code", DEC, RESYNC_CODES),
    resync_of = ProtoField.uint8("falcon.resync.type", "Type of the original", DEC, TYPES, 0xf0),
    resync_vendor = ProtoField.uint32("falcon.resync.vendor", "Vendor defined", HEX),
    payload = ProtoField.bytes("falcon.payload", "Payload"),
    padding = ProtoField.bytes("falcon.padding", "Padding"),
    -- Acknowledgements.
    t1 = ProtoField.uint32("falcon.t1", "T1, 131.072 ns", DEC),
    t2 = ProtoField.uint32("falcon.t2", "T2, 131.072 ns", DEC),
    hops = ProtoField.uint32("falcon.hops", "Hops", DEC, nil, 0xf0000000),
    rx_level = ProtoField.uint32("falcon.rx_level", "Receive buffer level", DEC, nil, 0x0f800000),
    ecn = ProtoField.uint32("falcon.ecn", "Packets with a congestion mark", DEC, nil, 0x007ffe00),
    metadata = ProtoField.uint32("falcon.metadata", "Engine's metadata", HEX, nil, 0x00fffffc),
    nack_metadata = ProtoField.uint32("falcon.nack.metadata", "Engine's metadata", HEX, nil, 0x00ffffff),
    own_data = ProtoField.bool("falcon.out_of_window.data", "Out of the data window", 32, nil, 0x2),
    own_request = ProtoField.bool("falcon.out_of_window.request", "Out of the request window", 32, nil, 0x1),
    data_acked = ProtoField.string("falcon.data_acked", "Data acknowledged"),
    data_received = ProtoField.string("falcon.data_received", "Data received"),
    data_missing = ProtoField.string("falcon.data_missing", "Data missing"),
    request_received = ProtoField.string("falcon.request_received", "Requests received"),
    request_missing = ProtoField.string("falcon.request_missing", "Requests missing"),
    nack_psn = ProtoField.uint32("falcon.nack.psn", "Refused PSN", DEC),
    nack_code = ProtoField.uint8("falcon.nack.code", "Code", DEC, NACK_CODES),
    nack_wait = ProtoField.uint8("falcon.nack.wait", "Wait, code", DEC, nil, 0x1f),
    nack_wait_ms = ProtoField.double("falcon.nack.wait_ms", "Wait, ms"),
    nack_window = ProtoField.uint8("falcon.nack.window", "Window", DEC, WINDOWS, 0x80),
    nack_ulp = ProtoField.uint8("falcon.nack.ulp_code", "Upper layer's code", DEC),
    -- RDMA.
    rdma = ProtoField.none("falcon.rdma", "RDMA over Falcon"),
    r_version = ProtoField.uint8("falcon.rdma.version", "Version", DEC, nil, 0xf0),
    r_error = ProtoField.bool("falcon.rdma.complete_in_error", "Complete in error", 8, nil, 0x10),
    r_pad = ProtoField.uint8("falcon.rdma.pad", "Padding", DEC, nil, 0x0c),
    r_solicited = ProtoField.bool("falcon.rdma.solicited", "Solicited event", 8, nil, 0x01),
    r_opcode = ProtoField.uint8("falcon.rdma.opcode", "Opcode", HEX, OPCODES),
    r_dest_qp = ProtoField.uint24("falcon.rdma.dest_qp", "Destination queue pair", HEX),
    r_sn = ProtoField.uint32("falcon.rdma.sn", "Sequence number", DEC),
    r_va = ProtoField.uint64("falcon.rdma.va", "Virtual address", HEX),
    r_rkey = ProtoField.uint32("falcon.rdma.rkey", "Remote key", HEX),
    r_length = ProtoField.uint32("falcon.rdma.length", "Length", DEC),
    r_rmsn = ProtoField.uint32("falcon.rdma.rmsn", "Request message number", DEC),
    r_offset = ProtoField.uint32("falcon.rdma.offset", "Offset in the message", DEC),
    r_sink_va = ProtoField.uint64("falcon.rdma.sink_va", "Sink address", HEX),
    r_sink_lkey = ProtoField.uint32("falcon.rdma.sink_lkey", "Sink key", HEX),
    r_immediate = ProtoField.uint32("falcon.rdma.immediate", "Immediate", HEX),
    r_invalidate = ProtoField.uint32("falcon.rdma.invalidate", "Key to invalidate", HEX),
    r_swap = ProtoField.uint64("falcon.rdma.swap_or_add", "Swap or add", HEX),
    r_compare = ProtoField.uint64("falcon.rdma.compare", "Compare", HEX),
    r_original = ProtoField.uint64("falcon.rdma.original", "Original value", HEX),
    r_queue_key = ProtoField.uint32("falcon.rdma.queue_key", "Queue key", HEX),
    r_source_qp = ProtoField.uint24("falcon.rdma.source_qp", "Source queue pair", HEX),
    -- NVMe.
    nvme = ProtoField.none("falcon.nvme", "NVMe over Falcon"),
    n_version = ProtoField.uint8("falcon.nvme.version", "Version", DEC, nil, 0xf0),
    n_type = ProtoField.uint8("falcon.nvme.type", "Type", DEC, NVME_TYPES, 0x0f),
    n_function = ProtoField.uint24("falcon.nvme.initiator_function", "Initiator's function", HEX),
    n_invalid = ProtoField.bool("falcon.nvme.data_invalid", "Data invalid", 8, nil, 0x20),
    n_split = ProtoField.bool("falcon.nvme.split", "Split", 8, nil, 0x10),
    n_group = ProtoField.bool("falcon.nvme.second_group", "Second stripe group", 8, nil, 0x08),
    n_target_tag = ProtoField.uint24("falcon.nvme.target_tag", "Target tag", HEX),
    n_units = ProtoField.uint8("falcon.nvme.units_less_one", "Units, less one", DEC),
    n_initiator_tag = ProtoField.uint24("falcon.nvme.initiator_tag", "Initiator tag", HEX),
    n_unit = ProtoField.uint8("falcon.nvme.unit", "Unit", DEC),
    n_command = ProtoField.uint24("falcon.nvme.command", "Command", HEX),
    n_initiator_nsid = ProtoField.uint16("falcon.nvme.initiator_nsid", "Namespace at the initiator", DEC),
    n_target_nsid = ProtoField.uint16("falcon.nvme.target_nsid", "Namespace at the target", DEC),
    n_slba = ProtoField.uint64("falcon.nvme.slba", "Starting block", DEC),
    n_blocks = ProtoField.uint16("falcon.nvme.blocks", "Blocks, as NVMe counts", DEC),
    n_dtype = ProtoField.uint8("falcon.nvme.directive_type", "Directive type", DEC, nil, 0x0f),
    n_prinfo = ProtoField.uint8("falcon.nvme.protection", "Protection information", HEX, nil, 0x3c),
    n_fua = ProtoField.bool("falcon.nvme.force_unit_access", "Force unit access", 8, nil, 0x02),
    n_retry = ProtoField.bool("falcon.nvme.limited_retry", "Limited retry", 8, nil, 0x01),
    n_dataset = ProtoField.uint8("falcon.nvme.dataset", "Dataset management", HEX),
    n_directive = ProtoField.uint16("falcon.nvme.directive", "Directive specific", HEX),
    n_reference = ProtoField.uint32("falcon.nvme.reference_tag", "Reference tag", HEX),
    n_mask = ProtoField.uint16("falcon.nvme.application_mask", "Application tag mask", HEX),
    n_tag = ProtoField.uint16("falcon.nvme.application_tag", "Application tag", HEX),
    n_queue = ProtoField.uint8("falcon.nvme.target_queue", "Target's queue", DEC),
    n_status = ProtoField.uint16("falcon.nvme.status", "Status", HEX, nil, 0x7fff),
}

local fields = {}
for _, field in pairs(f) do
    fields[#fields + 1] = field
end
falcon.fields = fields

local malformed =
    ProtoExpert.new("falcon.malformed", "Not a Falcon packet", expert.group.MALFORMED, expert.severity.ERROR)
falcon.experts = { malformed }

local ipv6_flow = Field.new("ipv6.flow")

local UDP_PORT, ROCE_PORT, NEXT_HEADER, ICV_LEN, CLEAR_LEN = 1000, 4791, 252, 16, 4
local BACK_LEN = 32

-- A place in the packet that adds fields one behind the other. What is not all there ends the dissection: as malformed
-- where it was not sent, and in silence where the capture has left it out. So it counts what was sent, not what is here.
local Cursor = {}
Cursor.__index = Cursor

local function cursor(tvb, sent, tree)
    return setmetatable({ tvb = tvb, sent = sent, tree = tree, at = 0 }, Cursor)
end

function Cursor:left()
    return self.sent - self.at
end

function Cursor:captured()
    return self.tvb:len() - self.at
end

function Cursor:need(len)
    if self:left() < len then
        error({ short = len - self:left() })
    end
    if self:captured() < len then
        error({ cut = true })
    end
end

-- Adds fields that share the next bytes, and steps over them.
function Cursor:add(len, ...)
    self:need(len)
    local range = self.tvb(self.at, len)
    for _, field in ipairs({ ... }) do
        self.tree:add(field, range)
    end
    self.at = self.at + len
    return range
end

function Cursor:skip(len)
    self:need(len)
    self.at = self.at + len
end

-- Adds the next bytes as far as they are here, and steps over them all.
function Cursor:add_data(len, field)
    if self:captured() > 0 then
        self.tree:add(field, self.tvb(self.at, math.min(len, self:captured())))
    end
    self:skip(len)
end

-- A place below `field`, which covers the next bytes until its own length is known.
function Cursor:section(field)
    self:need(1)
    local tree = self.tree:add(field, self.tvb(self.at, self:captured()))
    return setmetatable({ tvb = self.tvb, sent = self.sent, tree = tree, at = self.at }, Cursor)
end

-- "4-6, 8" for the bits set in the bitmap at `range`, or clear below the highest set one; bit n of the big-endian
-- number stands for base + n.
local function set_of(range, base, wanted)
    local bits = range:len() * 8
    local function bit_of(n)
        return range:bitfield(bits - 1 - n, 1)
    end
    local past = bits
    while past > 0 and bit_of(past - 1) == 0 do
        past = past - 1
    end
    local parts, first = {}, nil
    for n = 0, past do
        local inside = n < past and bit_of(n) == wanted
        if inside and not first then
            first = n
        elseif first and not inside then
            local low, high = (base + first) % 4294967296, (base + n - 1) % 4294967296
            parts[#parts + 1] = low == high and string.format("%d", low) or string.format("%d-%d", low, high)
            first = nil
        end
    end
    return table.concat(parts, ", ")
end

local function add_bitmap(place, len, base, set, holes)
    place:need(len)
    local range = place.tvb(place.at, len)
    place.tree:add(set, range, set_of(range, base, 1))
    if holes then
        place.tree:add(holes, range, set_of(range, base, 0)):set_generated()
    end
    place.at = place.at + len
end

local function send_placement(place)
    place:add(4, f.r_rmsn)
    place:add(4, f.r_offset)
end

local function reth(place)
    place:add(8, f.r_va)
    place:add(4, f.r_rkey)
    place:add(4, f.r_length)
end

local function sink(place)
    place:add(8, f.r_sink_va)
    place:add(4, f.r_sink_lkey)
end

local function immediate(place)
    place:add(4, f.r_immediate)
end

local function read_request(place)
    reth(place)
    place:add(4, f.r_rmsn)
    sink(place)
end

local function atomic_request(place)
    place:add(8, f.r_va)
    place:add(4, f.r_rkey)
    place:add(8, f.r_swap)
    place:add(8, f.r_compare)
    place:add(4, f.r_rmsn)
    sink(place)
end

local function atomic_response(place)
    place:add(8, f.r_original)
    sink(place)
end

local function deth(place)
    place:add(4, f.r_queue_key)
    place:skip(1)
    place:add(3, f.r_source_qp)
end

local function send_immediate(place)
    send_placement(place)
    immediate(place)
end

local function send_invalidate(place)
    send_placement(place)
    place:add(4, f.r_invalidate)
end

local function write_immediate(place)
    reth(place)
    place:add(4, f.r_rmsn)
    immediate(place)
end

local function datagram_immediate(place)
    deth(place)
    immediate(place)
end

-- What follows RBTH, the Falcon type that carries it, and whether data cannot follow.
local PUSH, PULL, DATA = 5, 0, 3
local BARE = true
local RDMA = {
    [0x00] = { PUSH, send_placement }, [0x01] = { PUSH, send_placement }, [0x02] = { PUSH, send_placement },
    [0x03] = { PUSH, send_immediate }, [0x04] = { PUSH, send_placement }, [0x05] = { PUSH, send_immediate },
    [0x06] = { PUSH, reth }, [0x07] = { PUSH, reth }, [0x08] = { PUSH, reth }, [0x09] = { PUSH, write_immediate },
    [0x0a] = { PUSH, reth }, [0x0b] = { PUSH, write_immediate }, [0x0c] = { PULL, read_request, BARE },
    [0x0d] = { DATA, sink }, [0x0e] = { DATA, sink }, [0x0f] = { DATA, sink }, [0x10] = { DATA, sink },
    [0x12] = { DATA, atomic_response, BARE }, [0x13] = { PULL, atomic_request, BARE },
    [0x14] = { PULL, atomic_request, BARE },
    [0x16] = { PUSH, send_invalidate }, [0x17] = { PUSH, send_invalidate }, [0x64] = { PUSH, deth },
    [0x65] = { PUSH, datagram_immediate },
}

-- Adds RDMA's headers; says what it is, how much padding follows, and how much data may.
local function rdma(place, packet_type)
    local version = place:add(1, f.r_version):bitfield(0, 4)
    place:skip(1)
    local flags = place:add(1, f.r_error, f.r_pad, f.r_solicited)
    local opcode = place:add(1, f.r_opcode):uint()
    place:add(3, f.r_dest_qp)
    place:skip(1)
    place:add(4, f.r_sn)
    if version ~= 1 then
        error({ why = "unknown version of RDMA" })
    end
    local row = RDMA[opcode]
    if not row then
        error({ why = "reserved RDMA opcode" })
    end
    if row[1] ~= packet_type then
        error({ why = "RDMA opcode in another type of packet" })
    end
    row[2](place)
    if place:left() % 4 ~= 0 then
        error({ why = "data and padding are not whole words" })
    end
    return "RDMA " .. OPCODES[opcode], flags:bitfield(4, 2), row[3] and 0 or 65535
end

local function nvme_command(place, packet)
    place:add(2, f.n_initiator_nsid)
    place:add(2, f.n_target_nsid)
    -- The low word comes first.
    place:need(8)
    local low, high = place.tvb(place.at, 4):uint(), place.tvb(place.at + 4, 4):uint()
    place.tree:add(f.n_slba, place.tvb(place.at, 8), UInt64(low, high))
    place:skip(8)
    place:add(2, f.n_blocks)
    if packet == 0 then
        place:add(1, f.n_dtype)
    else
        place:skip(1)
    end
    place:add(1, f.n_prinfo, f.n_fua, f.n_retry)
    place:add(1, f.n_dataset)
    place:skip(1)
    if packet == 0 then
        place:add(2, f.n_directive)
    else
        place:skip(2)
    end
    place:add(4, f.n_reference)
    place:add(2, f.n_mask)
    place:add(2, f.n_tag)
    place:skip(3)
    place:add(1, f.n_queue)
end

-- By type: the Falcon type that carries it, and how much data may follow.
local NVME = {
    [0] = { PUSH, 0 }, [1] = { PULL, 0 }, [2] = { DATA, 4224 }, [3] = { PUSH, 0 }, [4] = { PUSH, 0 },
    [5] = { PUSH, 4224 },
}

local function nvme(place, packet_type)
    local first = place:add(1, f.n_version, f.n_type)
    local packet = first:bitfield(4, 4)
    place:add(3, f.n_function)
    place:add(1, f.n_invalid, f.n_split, f.n_group)
    place:add(3, f.n_target_tag)
    place:add(1, f.n_units)
    place:add(3, f.n_initiator_tag)
    place:add(1, f.n_unit)
    place:add(3, f.n_command)
    place:skip(16)
    if first:bitfield(0, 4) ~= 1 then
        error({ why = "unknown version of NVMe" })
    end
    if not NVME[packet] then
        error({ why = "reserved NVMe packet type" })
    end
    if NVME[packet][1] ~= packet_type then
        error({ why = "NVMe packet type in another type of packet" })
    end
    if packet == 0 or packet == 4 then
        nvme_command(place, packet)
    elseif packet == 3 or packet == 5 then
        place:skip(2)
        place:add(2, f.n_status)
    end
    return "NVMe " .. NVME_TYPES[packet], 0, NVME[packet][2]
end

-- The upper layer's headers, payload and padding.
local function upper(place, protocol, packet_type, pinfo)
    if not PROTOCOLS[protocol] then
        error({ why = "reserved upper layer" })
    end
    local inner = place:section(protocol == 2 and f.rdma or f.nvme)
    local what, pad, most
    if protocol == 2 then
        what, pad, most = rdma(inner, packet_type)
    else
        what, pad, most = nvme(inner, packet_type)
    end
    inner.tree:set_len(inner.at - place.at)
    place.at = inner.at
    pinfo.cols.info:append(", " .. what)
    if place:left() < pad then
        error({ why = "less than the padding is left" })
    end
    if place:left() - pad > most then
        error({ why = "more data than fits this packet" })
    end
    if place:left() > pad then
        place:add_data(place:left() - pad, f.payload)
    end
    if pad > 0 then
        place:add(pad, f.padding)
    end
end

local function transaction(place, packet_type, protocol, pinfo)
    local psn = place:add(4, f.psn):uint()
    local rsn = place:add(4, f.rsn):uint()
    pinfo.cols.info:append(string.format(" PSN %d RSN %d", psn, rsn))
    if packet_type == PULL or packet_type == PUSH then
        place:skip(2)
        local length = place:add(2, f.request_length):uint()
        pinfo.cols.info:append(string.format(" length %d", length))
        if packet_type == PULL then
            place:skip(4)
        elseif length ~= place:left() then
            error({ why = "request length is not the payload's" })
        end
    end
    upper(place, protocol, packet_type, pinfo)
end

local function resync(place)
    local psn = place:add(4, f.psn):uint()
    local rsn = place:add(4, f.rsn):uint()
    local code = place:add(1, f.resync_code):uint()
    local original = place:add(1, f.resync_of):bitfield(0, 4)
    place:skip(2)
    place:add(4, f.resync_vendor)
    if not RESYNC_CODES[code] or (original ~= PULL and original ~= PUSH and original ~= DATA) then
        error({ why = "reserved code or original" })
    end
    return string.format(" PSN %d RSN %d of %s, %s", psn, rsn, TYPES[original], RESYNC_CODES[code])
end

local function measured(place)
    place:add(4, f.t1)
    place:add(4, f.t2)
    place:add(4, f.hops, f.rx_level, f.ecn)
end

local function acknowledgement(place, packet_type, data_base, request_base)
    measured(place)
    local own = place:add(4, f.metadata, f.own_data, f.own_request):bitfield(30, 2)
    local info = string.format(" data %d requests %d", data_base, request_base)
    if packet_type == 10 then
        add_bitmap(place, 16, data_base, f.data_acked)
        place:need(16)
        local received = set_of(place.tvb(place.at, 16), data_base, 1)
        add_bitmap(place, 16, data_base, f.data_received, f.data_missing)
        add_bitmap(place, 8, request_base, f.request_received, f.request_missing)
        if received ~= "" then
            info = info .. " received " .. received
        end
    end
    local out = { " [out of the request window]", " [out of the data window]", " [out of both windows]" }
    return info .. (out[own] or "")
end

local function nack(place)
    measured(place)
    place:add(4, f.nack_metadata)
    local psn = place:add(4, f.nack_psn):uint()
    local code = place:add(1, f.nack_code):uint()
    local wait = place:add(1, f.nack_wait):bitfield(3, 5)
    if code == 2 then
        place.tree:add(f.nack_wait_ms, place.tvb(place.at - 1, 1), WAITS[wait] / 100):set_generated()
    end
    local window = place:add(1, f.nack_window):bitfield(0, 1)
    place:add(1, f.nack_ulp)
    if not NACK_CODES[code] then
        error({ why = "reserved code" })
    end
    return string.format(" of %s PSN %d, %s", WINDOWS[window], psn, NACK_CODES[code])
end

-- A packet in clear. What is wrong comes as an error with a table that says so.
local function packet(place, pinfo)
    local version = place:add(1, f.version):bitfield(0, 4)
    local cid = place:add(3, f.cid):uint()
    if version ~= 1 then
        error({ why = "unknown version" })
    end
    place:need(12)
    local word = place.tvb(place.at + 3, 1)
    local protocol, packet_type = word:bitfield(0, 3), word:bitfield(3, 4)
    local name = TYPES[packet_type]
    pinfo.cols.info = string.format("%s CID 0x%06x", name or "Reserved type", cid)
    if packet_type >= 8 then
        place:skip(3)
        place:add(1, f.type)
    else
        place:add(3, f.func)
        if place:add(1, f.protocol, f.type, f.ack_request):bitfield(7, 1) == 1 then
            pinfo.cols.info:append(" [AR]")
        end
    end
    local data_base = place:add(4, f.data_base):uint()
    local request_base = place:add(4, f.request_base):uint()
    if not name then
        error({ why = "reserved type" })
    end
    if packet_type == PULL or packet_type == PUSH or packet_type == DATA then
        transaction(place, packet_type, protocol, pinfo)
    elseif packet_type == 6 then
        pinfo.cols.info:append(resync(place))
        if not PROTOCOLS[protocol] then
            error({ why = "reserved upper layer" })
        end
    elseif packet_type == 8 then
        pinfo.cols.info:append(nack(place))
    else
        pinfo.cols.info:append(acknowledgement(place, packet_type, data_base, request_base))
    end
    if place:left() > 0 then
        error({ why = "more than the packet" })
    end
end

-- The PSP header: its cipher, key and length.
local function psp(place)
    local section = place:section(f.psp)
    section:add(1, f.next_header)
    local words = section:add(1, f.header_words):uint()
    local offset = section:add(1, f.crypt_offset):bitfield(2, 6)
    local flags = section:add(1, f.sample, f.drop, f.cipher, f.has_cookie)
    local spi = section:add(4, f.spi):uint()
    section:add(4, f.salt)
    section:add(4, f.timestamp)
    local has_cookie = flags:bitfield(6, 1) == 1
    if has_cookie then
        section:add(8, f.cookie)
    end
    section.tree:set_len(section.at - place.at)
    if words ~= (has_cookie and 2 or 1) or flags:bitfield(7, 1) == 0 or not CIPHERS[flags:bitfield(2, 4)] then
        error({ why = "malformed PSP header" })
    end
    if offset ~= (has_cookie and 3 or 1) then
        error({ why = "not Falcon's crypt offset" })
    end
    place.at = section.at
    return flags:bitfield(2, 4), spi
end

-- The flow. Packets to PSP's own port have it in IP's flow label. Those of sockets go to other ports, and have the
-- label's low seven bits in the vector's salt, below 15 bits of time and above 10 that count packets: the label of IP
-- is then the kernel's, or zero, and says nothing of flows.
local function add_flow(tree, tvb, pinfo)
    if falcon.prefs.flow_bits > 20 or tvb:len() < 12 then
        return
    end
    local many = 2 ^ falcon.prefs.flow_bits
    if pinfo.dst_port ~= UDP_PORT then
        tree:add(f.flow, tvb(8, 4), tvb(8, 4):bitfield(15, 7) % many):set_generated()
        return
    end
    local label = ipv6_flow()
    if label then
        tree:add(f.flow, label.value % many):set_generated()
    end
end

function falcon.dissector(tvb, pinfo, root)
    local sent = tvb:reported_len()
    if sent < 16 + CLEAR_LEN + ICV_LEN or tvb:len() < 1 or tvb(0, 1):uint() ~= NEXT_HEADER then
        return 0
    end
    pinfo.cols.protocol = "Falcon"
    local tree = root:add(falcon, tvb())
    add_flow(tree, tvb, pinfo)
    local whole = cursor(tvb, sent - ICV_LEN, tree)
    local function all()
        local cipher, spi = psp(whole)
        if tvb:len() >= sent then
            tree:add(f.icv, tvb(sent - ICV_LEN, ICV_LEN))
        end
        whole:need(CLEAR_LEN)
        local here = math.min(whole:left(), whole:captured())
        local message = cursor(tvb(whole.at, here):tvb(), whole:left(), tree)
        if spi ~= 0 and cipher < 2 and not falcon.prefs.in_clear then
            message:add(1, f.version)
            local cid = message:add(3, f.cid):uint()
            pinfo.cols.info = string.format("Encrypted CID 0x%06x", cid)
            if message:left() > 0 then
                message:add_data(message:left(), f.encrypted)
            end
        else
            packet(message, pinfo)
        end
        if tvb:len() < sent then
            error({ cut = true })
        end
    end
    local fine, problem = pcall(all)
    if not fine then
        if type(problem) ~= "table" then
            error(problem, 0)
        end
        if problem.cut then
            tree:append_text(" [cut by the capture]")
            pinfo.cols.info:append(" [cut by the capture]")
            return tvb:len()
        end
        local why = problem.why or string.format("%d bytes are missing", problem.short)
        tree:add_proto_expert_info(malformed, why)
        pinfo.cols.info:append(" [" .. why .. "]")
    end
    return tvb:len()
end

-- Whether a datagram can be nobody else's: 31 bits of it are Falcon's in PSP, and the shortest packet, a BACK, fits. A
-- capture that has left the rest out must have these bits.
local function is_certain(tvb)
    if tvb:len() < 4 or tvb(0, 1):uint() ~= NEXT_HEADER then
        return false
    end
    local flags = tvb(3, 1)
    local has_cookie = flags:bitfield(6, 1)
    local starts = has_cookie == 1 and 0x0203 or 0x0101
    local packet_at = 16 + 8 * has_cookie
    return tvb(1, 2):uint() == starts
        and flags:bitfield(7, 1) == 1
        and CIPHERS[flags:bitfield(2, 4)] ~= nil
        and tvb:len() > packet_at
        and tvb(packet_at, 1):bitfield(0, 4) == 1
        and tvb:reported_len() >= packet_at + BACK_LEN + ICV_LEN
end

local udp_ports = DissectorTable.get("udp.port")
udp_ports:add(UDP_PORT, falcon)

-- Sockets send from and to whatever ports.
falcon:register_heuristic("udp", function(tvb, pinfo, root)
    if not is_certain(tvb) then
        return false
    end
    falcon.dissector(tvb, pinfo, root)
    return true
end)

-- The port of RoCEv2 is shared: its opcode comes first, and 252 is none of InfiniBand's. What is not Falcon's is handed
-- on.
local roce = udp_ports:get_dissector(ROCE_PORT)
local shared = Proto("falcon_or_roce", "Falcon or RoCEv2")

function shared.dissector(tvb, pinfo, root)
    if is_certain(tvb) then
        return falcon.dissector(tvb, pinfo, root)
    end
    if not roce then
        return 0
    end
    -- What was sent malformed has been marked as that already when the call fails: the script shall not add an error of
    -- its own. But what a capture has left out raises one that pcall does not see, and that leaves Lua's stack as it is:
    -- a hundred such, and the script is of no more use. So it sees what is there as all there is, and calls that
    -- malformed, too.
    local part = tvb
    if tvb:len() > 0 and tvb:len() < tvb:reported_len() then
        part = tvb(0, tvb:len()):tvb()
    end
    local fine, taken = pcall(roce.call, roce, part, pinfo, root)
    return fine and taken or tvb:len()
end

udp_ports:add(ROCE_PORT, shared)
