// A NIC's sender, from RoCEv2 packets to RoCEv2 headers: the header shell around Tonic's transport logic.
//
//   s_axis -> header_shell -> reports -> tonic_top -> addresses -> header_shell -> m_axis
//                          -> other_*: data and requests, to receivers and software
//
// Source: Tonic (NSDI'20), section 2, for the place of the transport logic in a NIC; the parts say theirs. A flow is a
// queue pair, a segment is a packet, and its number is the PSN. RoCEv2 does not echo how often a packet was sent, so
// that the program sees zero there. Payload passes beside it: see `header_shell`.
//
// Ports:
//   config_i, link_rate_i, command_*, stats_o   of `tonic_top`
//   peer_*                                      of `header_shell`, where they are called `cfg_*`: before COMMAND_ADD
//   s_axis_*, other_*, dropped_o, m_axis_*      of `header_shell`
//
// Latency: from the last header beat of a report to the program 4 cycles, from an address to the first beat of its header
// 2. Initiation interval: as that of the parts. `m_axis_tready` stalls the credit engine, once the two registers of the
// shell are full.
module tonic_nic #(
    parameter int unsigned DATA_W = 512,
    parameter int unsigned FLOWS = 1024,
    parameter logic [23:0] FIRST_QPN = 24'h000100
) (
    input  logic                                clk,
    input  logic                                rst_n,
    input  logic [tonic_user_pkg::CONFIG_W-1:0] config_i,
    input  logic [22:0]                         link_rate_i,
    input  logic                                command_valid_i,
    input  logic [$clog2(FLOWS)-1:0]            command_flow_i,
    input  logic [tonic_pkg::COMMAND_W-1:0]     command_i,
    input  logic                                peer_valid_i,
    input  logic [$clog2(FLOWS)-1:0]            peer_flow_i,
    input  logic [23:0]                         peer_qpn_i,
    input  logic [7:0]                          peer_opcode_i,
    input  logic [DATA_W-1:0]                   s_axis_tdata,
    input  logic [DATA_W/8-1:0]                 s_axis_tkeep,
    input  logic                                s_axis_tlast,
    input  logic                                s_axis_tvalid,
    output logic                                s_axis_tready,
    output logic                                other_valid_o,
    output logic [$clog2(FLOWS)-1:0]            other_flow_o,
    output shell_pkg::bth_t                     other_o,
    output logic                                dropped_o,
    output logic [DATA_W-1:0]                   m_axis_tdata,
    output logic [DATA_W/8-1:0]                 m_axis_tkeep,
    output logic                                m_axis_tlast,
    output logic                                m_axis_tvalid,
    input  logic                                m_axis_tready,
    output logic [9:0]                          stats_o
);
  localparam int unsigned F = $clog2(FLOWS);

  logic               report_valid, address_valid, address_ready;
  logic [F-1:0]       report_flow, address_flow;
  shell_pkg::report_t report;
  logic [23:0]        address_segment;
  tonic_pkg::packet_t packet;

  header_shell #(.DATA_W(DATA_W), .FLOWS(FLOWS), .FIRST_QPN(FIRST_QPN)) i_shell (
      .clk(clk),
      .rst_n(rst_n),
      .s_axis_tdata(s_axis_tdata),
      .s_axis_tkeep(s_axis_tkeep),
      .s_axis_tlast(s_axis_tlast),
      .s_axis_tvalid(s_axis_tvalid),
      .s_axis_tready(s_axis_tready),
      .report_valid_o(report_valid),
      .report_flow_o(report_flow),
      .report_o(report),
      .other_valid_o(other_valid_o),
      .other_flow_o(other_flow_o),
      .other_o(other_o),
      .dropped_o(dropped_o),
      .cfg_valid_i(peer_valid_i),
      .cfg_flow_i(peer_flow_i),
      .cfg_dest_qpn_i(peer_qpn_i),
      .cfg_opcode_i(peer_opcode_i),
      .addr_valid_i(address_valid),
      .addr_ready_o(address_ready),
      .addr_flow_i(address_flow),
      .addr_segment_i(address_segment),
      .m_axis_tdata(m_axis_tdata),
      .m_axis_tkeep(m_axis_tkeep),
      .m_axis_tlast(m_axis_tlast),
      .m_axis_tvalid(m_axis_tvalid),
      .m_axis_tready(m_axis_tready)
  );

  always_comb begin
    packet.ack = report.ack;
    packet.nack = report.nack;
    packet.trimmed = report.trimmed;
    packet.cnp = report.cnp;
    packet.sacked = report.sacked;
    packet.cum = report.cum;
    packet.sack = report.sack;
    packet.times_sent = 2'd0;
    packet.has_grant = report.has_grant;
    packet.grant = report.granted;
  end

  tonic_top #(.FLOWS(FLOWS)) i_tonic (
      .clk(clk),
      .rst_n(rst_n),
      .config_i(config_i),
      .link_rate_i(link_rate_i),
      .command_valid_i(command_valid_i),
      .command_flow_i(command_flow_i),
      .command_i(command_i),
      .packet_valid_i(report_valid),
      .packet_flow_i(report_flow),
      .packet_i(packet),
      .address_valid_o(address_valid),
      .address_flow_o(address_flow),
      .address_segment_o(address_segment),
      .address_times_sent_o(),
      .address_ready_i(address_ready),
      .stats_o(stats_o),
      .debug_flow_i('0),
      .debug_window_o(),
      .debug_duty_o(),
      .debug_ring_o(),
      .debug_credit_o(),
      .debug_state_o(),
      .debug_events_o()
  );
endmodule
