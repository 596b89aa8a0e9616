// The header path of a NIC around a sender's transport logic, between two AXI-Streams that carry UDP payloads of RoCEv2.
//
//   s_axis -> header_collect -> header_decode -> flow number -> report_*   to the transport logic (`tonic_top`: pkt_*)
//                                                            -> other_*    data and requests, to receivers and software
//   m_axis <- header_build <- table of flows <- addr_*                     from the transport logic
//
// A flow is a queue pair: its own number is FIRST_QPN + flow, that of its peer is in the table, which `cfg_*` writes
// while the flow has no segment in flight. `opcode` is that of every packet of a flow, for flows whose segments are
// messages; what divides messages into segments replaces it. Each packet asks for an acknowledgement.
//
// report_valid_o  pulse: `report_o` is for `report_flow_o`. There is no ready: the transport logic takes one a cycle.
// other_valid_o   pulse: a packet of a known flow that is not a report
// dropped_o       pulse: a packet was too short, malformed, or of a queue pair that is no flow
//
// Latency: from the last beat of headers to a pulse, one cycle; from an address to the first beat, two cycles.
// Ports of streams have the names that AXI-Stream tools expect.
module header_shell #(
    parameter int unsigned DATA_W = 512,
    parameter int unsigned FLOWS = 1024,
    parameter logic [23:0] FIRST_QPN = 24'h000100
) (
    input  logic                     clk,
    input  logic                     rst_n,
    input  logic [DATA_W-1:0]        s_axis_tdata,
    input  logic [DATA_W/8-1:0]      s_axis_tkeep,
    input  logic                     s_axis_tlast,
    input  logic                     s_axis_tvalid,
    output logic                     s_axis_tready,
    output logic                     report_valid_o,
    output logic [$clog2(FLOWS)-1:0] report_flow_o,
    output shell_pkg::report_t       report_o,
    output logic                     other_valid_o,
    output logic [$clog2(FLOWS)-1:0] other_flow_o,
    output shell_pkg::bth_t          other_o,
    output logic                     dropped_o,
    input  logic                     cfg_valid_i,
    input  logic [$clog2(FLOWS)-1:0] cfg_flow_i,
    input  logic [23:0]              cfg_dest_qpn_i,
    input  logic [7:0]               cfg_opcode_i,
    input  logic                     addr_valid_i,
    output logic                     addr_ready_o,
    input  logic [$clog2(FLOWS)-1:0] addr_flow_i,
    input  logic [23:0]              addr_segment_i,
    output logic [DATA_W-1:0]        m_axis_tdata,
    output logic [DATA_W/8-1:0]      m_axis_tkeep,
    output logic                     m_axis_tlast,
    output logic                     m_axis_tvalid,
    input  logic                     m_axis_tready
);
  localparam int unsigned FLOW_W = $clog2(FLOWS);

  // Packets from the network.
  logic [8*shell_pkg::HEADER_BYTES-1:0] bytes;
  logic [4:0]                           length;
  logic                                 is_header, is_report, is_bad, is_flow;
  logic [23:0]                          number;
  shell_pkg::bth_t                      bth;

  header_collect #(.DATA_W(DATA_W)) i_collect (
      .clk,
      .rst_n,
      .tdata_i (s_axis_tdata),
      .tkeep_i (s_axis_tkeep),
      .tlast_i (s_axis_tlast),
      .tvalid_i(s_axis_tvalid),
      .tready_o(s_axis_tready),
      .bytes_o (bytes),
      .length_o(length),
      .valid_o (is_header),
      .ready_i (1'b1)
  );
  header_decode i_decode (
      .bytes_i    (bytes),
      .length_i   (length),
      .bth_o      (bth),
      .report_o   (report_o),
      .is_report_o(is_report),
      .is_bad_o   (is_bad)
  );

  assign number = bth.dest_qpn - FIRST_QPN;
  assign is_flow = ~is_bad & (number[23:FLOW_W] == '0);
  assign report_flow_o = number[FLOW_W-1:0];
  assign report_valid_o = is_header & is_flow & is_report;
  assign other_flow_o = number[FLOW_W-1:0];
  assign other_valid_o = is_header & is_flow & ~is_report;
  assign other_o = bth;
  assign dropped_o = is_header & ~is_flow;

  // Addresses from the transport logic: the flow's entry is read while the segment waits in a register.
  logic [31:0]     flows[FLOWS];
  logic [31:0]     flow_q;
  logic [23:0]     segment_q;
  logic            pending_q, is_taken, addr_accept;
  shell_pkg::bth_t next_header;

  assign addr_ready_o = ~pending_q | is_taken;
  assign addr_accept = addr_valid_i & addr_ready_o;
  always_ff @(posedge clk) begin
    if (cfg_valid_i) flows[cfg_flow_i] <= {cfg_opcode_i, cfg_dest_qpn_i};
    if (addr_accept) begin
      flow_q    <= flows[addr_flow_i];
      segment_q <= addr_segment_i;
    end
    if (!rst_n) pending_q <= 1'b0;
    else if (addr_ready_o) pending_q <= addr_valid_i;
  end

  always_comb begin
    next_header = '0;
    next_header.opcode = flow_q[31:24];
    next_header.migrated = 1'b1;
    next_header.dest_qpn = flow_q[23:0];
    next_header.ack_request = 1'b1;
    next_header.psn = segment_q;
  end
  header_build #(.DATA_W(DATA_W)) i_build (
      .clk,
      .rst_n,
      .bth_i   (next_header),
      .valid_i (pending_q),
      .ready_o (is_taken),
      .tdata_o (m_axis_tdata),
      .tkeep_o (m_axis_tkeep),
      .tlast_o (m_axis_tlast),
      .tvalid_o(m_axis_tvalid),
      .tready_i(m_axis_tready)
  );
endmodule
