-- OpenRNIC's messages between NICs (SCR) for Wireshark and tshark.
--
--   wireshark -X lua_script:tools/wireshark/scr.lua CAPTURE      (docs/captures.md has more)
--
-- Source: crates/rnic-wire/src/scr.rs and scr/body.rs. Such a message looks like a RoCEv2 packet with opcode 0xc0, for
-- which Wireshark has no name. Runs on the Lua of Wireshark 3.6 to 4.6: no integer operators.

local scr = Proto("scr", "SCR message between NICs")

local ROCE_PORT, LEN, ICRC_AT, BODY_AT, RECORD_LEN, RECORDS_MAX = 4791, 128, 124, 48, 12, 6

local TYPES = {
    [1] = "Probe", [2] = "Probe answer", [3] = "Node report", [4] = "Grants", [5] = "Back-pressure", [6] = "Hint",
}
local GRANTS, BACK_PRESSURE = 4, 5
local KINDS = { [0] = "Limit", [1] = "Lift" }

local DEC, HEX = base.DEC, base.HEX
local f = {
    dest_qp = ProtoField.uint24("scr.dest_qp", "Destination queue pair", HEX),
    psn = ProtoField.uint24("scr.psn", "PSN", DEC),
    version = ProtoField.uint8("scr.version", "Version", DEC),
    type = ProtoField.uint8("scr.type", "Type", DEC, TYPES),
    announces = ProtoField.bool("scr.announces", "Announces a cookie", 8, nil, 0x01),
    answer_wanted = ProtoField.bool("scr.answer_wanted", "Answer wanted", 8, nil, 0x02),
    last = ProtoField.bool("scr.last", "Last of a burst", 8, nil, 0x04),
    records = ProtoField.uint8("scr.records", "Records", DEC),
    cookie = ProtoField.uint64("scr.cookie", "Cookie of the receiver", HEX),
    announced = ProtoField.uint64("scr.announced", "Cookie of the sender", HEX),
    sequence = ProtoField.uint32("scr.sequence", "Sequence number", DEC),
    source_qp = ProtoField.uint24("scr.source_qp", "Source queue pair", HEX),
    time = ProtoField.uint64("scr.time", "Time of sending, by the sender's clock", DEC),
    path = ProtoField.uint8("scr.path", "Path", DEC),
    label = ProtoField.uint16("scr.label", "Path label", DEC),
    echoed = ProtoField.uint64("scr.echoed", "Time of the probe", DEC),
    received = ProtoField.uint64("scr.received", "Probe received, ps", DEC),
    sent = ProtoField.uint64("scr.sent", "Answer sent, ps", DEC),
    bus_latency = ProtoField.uint32("scr.bus_latency", "Bus latency, ns", DEC),
    bus_use = ProtoField.uint16("scr.bus_use", "Use of the bus, of 65536", DEC),
    nic_use = ProtoField.uint16("scr.nic_use", "Use of the NIC, of 65536", DEC),
    rx_rate = ProtoField.uint32("scr.rx_rate", "Rate received, of 1048576", DEC),
    headroom = ProtoField.uint32("scr.headroom", "Headroom, of 1048576", DEC),
    members = ProtoField.uint32("scr.members", "Scheduled queue pairs", DEC),
    drops = ProtoField.uint32("scr.drops", "Packets dropped", DEC),
    grant = ProtoField.none("scr.grant", "Grant"),
    grant_qp = ProtoField.uint24("scr.grant.qp", "Queue pair", HEX),
    grant_kind = ProtoField.uint8("scr.grant.kind", "Kind", DEC, KINDS),
    grant_rate = ProtoField.uint32("scr.grant.rate", "Rate, kbit/s", DEC),
    grant_valid = ProtoField.uint16("scr.grant.valid", "Valid, us", DEC),
    grant_reason = ProtoField.uint16("scr.grant.reason", "Reason", DEC),
    pressure = ProtoField.none("scr.pressure", "Back-pressure"),
    pressure_qp = ProtoField.uint24("scr.pressure.qp", "Queue pair", HEX),
    pressure_severity = ProtoField.uint8("scr.pressure.severity", "Severity", DEC),
    pressure_waiting = ProtoField.uint32("scr.pressure.waiting", "Bytes waiting", DEC),
    pressure_count = ProtoField.uint32("scr.pressure.count", "Packets dropped", DEC),
    tenant = ProtoField.uint32("scr.tenant", "Tenant", DEC),
    weight = ProtoField.uint32("scr.weight", "Weight, of 65536", DEC),
    limit = ProtoField.uint32("scr.limit", "Rate limit, kbit/s", DEC),
    icrc = ProtoField.uint32("scr.icrc", "ICRC", HEX),
}

local list = {}
for _, field in pairs(f) do
    table.insert(list, field)
end
scr.fields = list

local malformed = ProtoExpert.new("scr.malformed", "Malformed", expert.group.MALFORMED, expert.severity.ERROR)
scr.experts = { malformed }

-- Fields of each type without records, with their lengths.
local BODIES = {
    [1] = { { f.path, 1 }, { f.label, 2 } },
    [2] = { { f.path, 1 }, { f.label, 2 }, { f.echoed, 8 }, { f.received, 8 }, { f.sent, 8 } },
    [3] = {
        { f.bus_latency, 4 }, { f.bus_use, 2 }, { f.nic_use, 2 }, { f.rx_rate, 4 }, { f.headroom, 4 },
        { f.members, 4 }, { f.drops, 4 },
    },
    [6] = { { f.tenant, 4 }, { f.weight, 4 }, { f.limit, 4 } },
}
-- Fields of a record, by type.
local RECORDS = {
    [GRANTS] = {
        f.grant,
        {
            { f.grant_qp, 3 }, { f.grant_kind, 1 }, { f.grant_rate, 4 }, { f.grant_valid, 2 }, { f.grant_reason, 2 },
        },
    },
    [BACK_PRESSURE] = {
        f.pressure,
        {
            { f.pressure_qp, 3 }, { f.pressure_severity, 1 }, { f.pressure_waiting, 4 }, { f.pressure_count, 4 },
        },
    },
}

-- Adds fields one behind the other from `at`; returns the place behind them.
local function add_fields(tree, tvb, at, fields)
    for _, row in ipairs(fields) do
        tree:add(row[1], tvb(at, row[2]))
        at = at + row[2]
    end
    return at
end

-- Returns why a message is refused by its receiver, as far as it can be seen without state; nil when it is not.
local function complaint(tvb, rest)
    local kind, flags, records = tvb(13, 1):uint(), tvb(14, 1):uint(), tvb(15, 1):uint()
    local announces, wants = flags % 2 == 1, math.floor(flags / 2) % 2 == 1
    local has_cookie, has_announced = tvb(16, 8):uint64() ~= UInt64(0), tvb(24, 8):uint64() ~= UInt64(0)
    if tvb(12, 1):uint() ~= 1 then
        return "unknown version"
    end
    if not TYPES[kind] then
        return "unknown type"
    end
    if flags > 7 or (announces and kind > 2) or (wants and kind == 2) then
        return "flags that the type cannot have"
    end
    if records > (RECORDS[kind] and RECORDS_MAX or 0) then
        return "too many records"
    end
    if announces ~= has_announced or not (has_cookie or (kind == 1 and announces)) then
        return "a cookie is absent or unexpected"
    end
    if tvb(9, 3):uint() ~= tvb(33, 3):uint() then
        return "PSN and sequence number differ"
    end
    for record = 1, kind == GRANTS and records or 0 do
        if not KINDS[tvb(BODY_AT + (record - 1) * RECORD_LEN + 3, 1):uint()] then
            return "unknown kind of grant"
        end
    end
    local is_zero = tvb(8, 1):uint() == 0 and tvb(39, 1):uint() == 0
    for at = rest, ICRC_AT - 1 do
        is_zero = is_zero and tvb(at, 1):uint() == 0
    end
    if not is_zero then
        return "a reserved bit is set"
    end
    return nil
end

-- Adds the content of a message; returns the place behind it.
local function body(tree, tvb, kind)
    if BODIES[kind] then
        return add_fields(tree, tvb, BODY_AT, BODIES[kind])
    end
    local at, records = BODY_AT, RECORDS[kind]
    if records then
        for _ = 1, math.min(tvb(15, 1):uint(), RECORDS_MAX) do
            at = add_fields(tree:add(records[1], tvb(at, RECORD_LEN)), tvb, at, records[2])
        end
    end
    return at
end

-- Whether a datagram is a message, by its length and its first four bytes: opcode, no flags, the default partition key.
local function is_message(tvb)
    return tvb:reported_len() == LEN and tvb:len() >= 4 and tvb(0, 4):uint() == 0xc000ffff
end

function scr.dissector(tvb, pinfo, root)
    if not is_message(tvb) then
        return 0
    end
    pinfo.cols.protocol = "SCR"
    local tree = root:add(scr, tvb())
    if tvb:len() < LEN then
        tree:append_text(" [cut by the capture]")
        pinfo.cols.info = "[cut by the capture]"
        return tvb:len()
    end
    tree:add(f.dest_qp, tvb(5, 3))
    tree:add(f.psn, tvb(9, 3))
    tree:add(f.version, tvb(12, 1))
    tree:add(f.type, tvb(13, 1))
    tree:add(f.announces, tvb(14, 1))
    tree:add(f.answer_wanted, tvb(14, 1))
    tree:add(f.last, tvb(14, 1))
    tree:add(f.records, tvb(15, 1))
    tree:add(f.cookie, tvb(16, 8))
    tree:add(f.announced, tvb(24, 8))
    tree:add(f.sequence, tvb(32, 4))
    tree:add(f.source_qp, tvb(36, 3))
    tree:add(f.time, tvb(40, 8))
    local kind = tvb(13, 1):uint()
    local rest = body(tree, tvb, kind)
    -- Low byte first.
    tree:add_le(f.icrc, tvb(ICRC_AT, 4))
    pinfo.cols.info = string.format("%s, sequence %d", TYPES[kind] or "Unknown type", tvb(32, 4):uint())
    local why = complaint(tvb, rest)
    if why then
        tree:add_proto_expert_info(malformed, why)
        pinfo.cols.info:append(" [" .. why .. "]")
    end
    return tvb:len()
end

local udp_ports = DissectorTable.get("udp.port")

-- Sockets send from and to other ports, too.
scr:register_heuristic("udp", function(tvb, pinfo, root)
    return scr.dissector(tvb, pinfo, root) > 0
end)

-- The port of RoCEv2 is shared: other packets are passed on to the dissector that had the port before.
local other = udp_ports:get_dissector(ROCE_PORT)
local shared = Proto("scr_or_roce", "SCR message or RoCEv2")

function shared.dissector(tvb, pinfo, root)
    if is_message(tvb) then
        return scr.dissector(tvb, pinfo, root)
    end
    if not other then
        return 0
    end
    -- As in falcon.lua: bytes that a capture has left out would raise an error that pcall does not catch.
    local part = tvb
    if tvb:len() > 0 and tvb:len() < tvb:reported_len() then
        part = tvb(0, tvb:len()):tvb()
    end
    local fine, taken = pcall(other.call, other, part, pinfo, root)
    return fine and taken or tvb:len()
end

udp_ports:add(ROCE_PORT, shared)
