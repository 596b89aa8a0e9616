// The Tonic NIC: transport logic that decides which segment of which flow is sent next, one address a cycle.
//
// Source: Tonic, "Enabling Programmable Transport Protocols in High-Speed NICs" (NSDI'20), section 3; the model is
// crates/rnic-tonic, equal in every cycle. Two engines with memories of their own: data delivery decides which segment,
// credit decides when. Between them: an address or a command forward, parameters forward, the flow of a departed
// address back. Only addresses of segments pass here, no payload.
//
// The program and the width K of the window are chosen by the folders of `rtl/gen` in which modules are searched:
// `tonic_user_*` and `tonic_pkg`.
//
// Ports:
//   config_i, link_rate_i  parameters of the program, lowest first; the rate of a flow without one: quasi-static
//   command_*              from the driver, one a cycle; the driver keeps their order and what is permitted
//   packet_*               from receivers, one a cycle
//   address_*              to the pipeline that fetches payload; an address stays until `address_ready_i`
//   stats_o                pulses, lowest first: generated, of which repeats, packets, ignored ones, ones of unknown
//                          flows, timeouts, dropped visits, transmitted, waits of Transmit and of others
//   debug_*                with DEBUG, the state of a flow after this cycle, in the next one: window, duty, ring
//                          without entries, credit, the program's state; and this cycle's events, five bits for each
//                          flow with any (first stage, second stage, visit, generation, departure), and one for each
//                          conflict where the program runs (a packet sees the answer to a packet; a visit sees it, and its
//                          timer is ended by it; a visit is dropped for the first stage, for the second). Without, they cost nothing.
//
// WHOLE_GROUPS chooses the memories of data delivery: 0, fields in stores by the modules that write them; 1, the paper's
// two groups, each of whose ports reads or writes the whole group.
//
// Latency from a flow's insertion into the active set to its address: 10 cycles, with credit at hand.
module tonic_top #(
    parameter int unsigned FLOWS = 1024,
    parameter int unsigned WHOLE_GROUPS = 0,
    parameter int unsigned DEBUG = 0
) (
    input  logic                                clk,
    input  logic                                rst_n,
    input  logic [tonic_user_pkg::CONFIG_W-1:0] config_i,
    input  logic [22:0]                         link_rate_i,
    input  logic                                command_valid_i,
    input  logic [$clog2(FLOWS)-1:0]            command_flow_i,
    input  logic [tonic_pkg::COMMAND_W-1:0]     command_i,
    input  logic                                packet_valid_i,
    input  logic [$clog2(FLOWS)-1:0]            packet_flow_i,
    input  logic [tonic_pkg::PACKET_W-1:0]      packet_i,
    output logic                                address_valid_o,
    output logic [$clog2(FLOWS)-1:0]            address_flow_o,
    output logic [23:0]                         address_segment_o,
    output logic [1:0]                          address_times_sent_o,
    input  logic                                address_ready_i,
    output logic [9:0]                          stats_o,
    input  logic [$clog2(FLOWS)-1:0]            debug_flow_i,
    output logic [tonic_pkg::WINDOW_W-1:0]      debug_window_o,
    output logic [tonic_pkg::DUTY_W-1:0]        debug_duty_o,
    output logic [tonic_pkg::N_W+tonic_pkg::COUNT_W-1:0] debug_ring_o,
    output logic [tonic_pkg::CREDIT_W-1:0]      debug_credit_o,
    output logic [tonic_user_pkg::STATE_W-1:0]  debug_state_o,
    output logic [29:0]                         debug_events_o
);
  localparam int unsigned F = $clog2(FLOWS);

  // Time: in cycles modulo 2^24, and in ticks of 16 cycles modulo 2^24.
  logic [27:0] now_q;
  always_ff @(posedge clk) now_q <= rst_n ? (now_q + 28'd1) : 28'd0;

  logic                   forward_valid, incoming_valid, periodic_valid, departed_valid;
  logic [F-1:0]           forward_flow, incoming_flow, periodic_flow, departed_flow;
  tonic_pkg::forward_t    forward;
  tonic_pkg::parameters_t incoming, periodic;
  tonic_pkg::ring_t       debug_ring;
  logic [8:0]             first_window;
  logic [22:0]            first_rate;
  logic [23:0]            first_timer;
  logic [tonic_user_pkg::STATE_W-1:0] first_state;

  tonic_user_start i_start (
      .config_i(config_i), .state_o(first_state), .window_o(first_window), .rate_o(first_rate), .timer_o(first_timer)
  );

  dd_engine #(.FLOWS(FLOWS), .WHOLE_GROUPS(WHOLE_GROUPS), .DEBUG(DEBUG)) i_delivery (
      .clk(clk),
      .rst_n(rst_n),
      .config_i(config_i),
      .link_rate_i(link_rate_i),
      .tick_i(now_q[27:4]),
      .command_valid_i(command_valid_i),
      .command_flow_i(command_flow_i),
      .command_i(command_i),
      .packet_valid_i(packet_valid_i),
      .packet_flow_i(packet_flow_i),
      .packet_i(packet_i),
      .departed_valid_i(departed_valid),
      .departed_flow_i(departed_flow),
      .forward_valid_o(forward_valid),
      .forward_flow_o(forward_flow),
      .forward_o(forward),
      .incoming_valid_o(incoming_valid),
      .incoming_flow_o(incoming_flow),
      .incoming_o(incoming),
      .periodic_valid_o(periodic_valid),
      .periodic_flow_o(periodic_flow),
      .periodic_o(periodic),
      .stats_o(stats_o[6:0]),
      .debug_flow_i(debug_flow_i),
      .debug_window_o(debug_window_o),
      .debug_duty_o(debug_duty_o),
      .debug_state_o(debug_state_o),
      .debug_events_o(debug_events_o)
  );

  cr_engine #(.FLOWS(FLOWS), .DEBUG(DEBUG)) i_credit (
      .clk(clk),
      .rst_n(rst_n),
      .now_i(now_q[23:0]),
      .first_rate_i((first_rate == 23'd0) ? link_rate_i : first_rate),
      .forward_valid_i(forward_valid),
      .forward_flow_i(forward_flow),
      .forward_i(forward),
      .incoming_valid_i(incoming_valid),
      .incoming_flow_i(incoming_flow),
      .incoming_i(incoming),
      .periodic_valid_i(periodic_valid),
      .periodic_flow_i(periodic_flow),
      .periodic_i(periodic),
      .departed_valid_o(departed_valid),
      .departed_flow_o(departed_flow),
      .address_valid_o(address_valid_o),
      .address_flow_o(address_flow_o),
      .address_segment_o(address_segment_o),
      .address_times_sent_o(address_times_sent_o),
      .address_ready_i(address_ready_i),
      .stats_o(stats_o[9:7]),
      .debug_flow_i(debug_flow_i),
      .debug_ring_o(debug_ring),
      .debug_credit_o(debug_credit_o)
  );
  assign debug_ring_o = {debug_ring.count, debug_ring.head};
endmodule
