// Decodes the transport headers of a packet: BTH, AETH, and IRN's extensions as in crates/rnic-wire/src/header/irn.rs.
//
// Source: InfiniBand Architecture volume 1, sections 9.2, 9.3 and 9.5; annexes A16 (CNP) and A17 (RoCEv2); IRN, section 5.
//
// bth_o        base transport header, valid unless `is_bad_o`
// report_o     what the packet says to the sender of its flow, valid with `is_report_o`
// is_report_o  acknowledgement, NAK for a missing packet, pull or congestion notification
// is_bad_o     too short, a version that is not known, or a reserved syndrome
//
// All other packets (data, requests, RNR NAKs, fatal NAKs) are neither. The ICRC has been checked before.
// An acknowledgement names the last packet that has arrived in order, a NAK the one that is missing.
// Combinational.
module header_decode (
    input  logic [8*shell_pkg::HEADER_BYTES-1:0] bytes_i,
    input  logic [4:0]                           length_i,
    output shell_pkg::bth_t                      bth_o,
    output shell_pkg::report_t                   report_o,
    output logic                                 is_report_o,
    output logic                                 is_bad_o
);
  // Bytes that each kind of packet has at least.
  localparam logic [4:0] LENGTH_BTH = 5'd12;
  localparam logic [4:0] LENGTH_AETH = 5'd16;
  localparam logic [4:0] LENGTH_SACK = 5'd20;
  localparam logic [4:0] LENGTH_PULL = 5'd20;
  localparam logic [4:0] LENGTH_CNP = 5'd28;

  logic [7:0] first, second, syndrome;
  logic [1:0] sack_flags;
  logic       is_irn, is_acknowledge, is_pull, is_cnp, is_known_syndrome, is_ack, is_gap, has_sack, is_trimmed;
  logic [4:0] needed;

  // Numbers on the wire have their highest byte first.
  assign first = bytes_i[8*0+:8];
  assign second = bytes_i[8*1+:8];
  assign syndrome = bytes_i[8*12+:8];
  assign sack_flags = bytes_i[8*16+6+:2];

  assign bth_o.opcode = first;
  assign {bth_o.solicited, bth_o.migrated, bth_o.pad, bth_o.version} = second;
  assign {bth_o.fecn, bth_o.becn} = bytes_i[8*4+6+:2];
  assign bth_o.dest_qpn = {bytes_i[8*5+:8], bytes_i[8*6+:8], bytes_i[8*7+:8]};
  assign bth_o.ack_request = bytes_i[8*8+7];
  assign bth_o.psn = {bytes_i[8*9+:8], bytes_i[8*10+:8], bytes_i[8*11+:8]};

  assign is_irn = second[3:0] == 4'd1;
  assign is_acknowledge = first == shell_pkg::OPCODE_ACKNOWLEDGE;
  assign is_pull = (first == shell_pkg::OPCODE_PULL) & is_irn;
  assign is_cnp = first == shell_pkg::OPCODE_CNP;

  // 000 ACK, 001 RNR NAK, 011 NAK with the codes 0 to 3.
  assign is_ack = syndrome[7:5] == 3'b000;
  assign is_gap = syndrome == 8'b011_00000;
  assign is_known_syndrome = is_ack | (syndrome[7:5] == 3'b001) | (syndrome[7:2] == 6'b011_000);
  assign has_sack = is_irn & sack_flags[1];
  assign is_trimmed = is_irn & (sack_flags == 2'b01) & is_gap;

  always_comb begin
    needed = LENGTH_BTH;
    if (is_acknowledge) needed = is_irn ? LENGTH_SACK : LENGTH_AETH;
    if (is_pull) needed = LENGTH_PULL;
    if (is_cnp) needed = LENGTH_CNP;
  end
  assign is_bad_o = (length_i < needed) | (second[3:1] != 3'd0) | (is_acknowledge & ~is_known_syndrome);
  assign is_report_o = ~is_bad_o & (is_pull | is_cnp | (is_acknowledge & (is_ack | is_gap)));

  always_comb begin
    report_o = '0;
    if (is_acknowledge) begin
      // The NAK of a go-back-N receiver says nothing but what is missing.
      report_o.ack = is_ack | (is_gap & is_irn & ~is_trimmed);
      report_o.nack = is_gap & ~is_trimmed;
      report_o.trimmed = is_trimmed;
      report_o.sacked = has_sack;
      report_o.cum = is_ack ? bth_o.psn + 24'd1 : bth_o.psn;
      report_o.sack = (has_sack | is_trimmed) ? {bytes_i[8*17+:8], bytes_i[8*18+:8], bytes_i[8*19+:8]} : 24'd0;
    end
    if (is_pull) begin
      report_o.has_grant = 1'b1;
      report_o.granted = {bytes_i[8*13+:8], bytes_i[8*14+:8], bytes_i[8*15+:8]};
    end
    report_o.cnp = is_cnp;
  end
endmodule
