// The receiver: acknowledgements, grants and congestion notifications for one packet a cycle. It places no data.
//
// Source: Tonic, section 2.1; the model is crates/rnic-tonic/src/receiver.rs, whose arrivals are one cycle later: here
// they pass a stage in which the flow's state is read. One flow is visited in each cycle, in turn: delayed
// acknowledgements are sent in cycles without another response, and old notifications forgotten.
//
// Kinds: 0 cumulative (Reno, NewReno), 1 selective (SACK), 2 selective with gaps reported (IRN), 3 for switches that
// trim, with grants (NDP), 4 go-back-N (RoCE).
//
// Ports:
//   delay_i, interval_i  ticks of 160 ns of a delayed acknowledgement (0: none, kind 0 only), and the least between two
//                        notifications of a flow (at least 1): quasi-static
//   add_i, remove_i      instead of an arrival, a flow is added, or restarted, with `segment_i` as its first segment, or
//                        removed
//   arrival_*            a data packet
//   response_*           what is sent back, 2 cycles after the arrival
//   dropped_o            pulse: an arrival was ignored
//   debug_*              with DEBUG, the state of a flow after this cycle, in the next one
module tonic_receiver #(
    parameter int unsigned FLOWS = 1024,
    parameter int unsigned KIND = 1,
    parameter int unsigned DEBUG = 0
) (
    input  logic                              clk,
    input  logic                              rst_n,
    input  logic [23:0]                       delay_i,
    input  logic [23:0]                       interval_i,
    input  logic                              add_i,
    input  logic                              remove_i,
    input  logic                              arrival_valid_i,
    input  logic [$clog2(FLOWS)-1:0]          flow_i,
    input  logic [23:0]                       segment_i,
    input  logic [1:0]                        times_sent_i,
    input  logic                              is_trimmed_i,
    input  logic                              is_marked_i,
    output logic                              response_valid_o,
    output logic [$clog2(FLOWS)-1:0]          response_flow_o,
    output logic [tonic_pkg::PACKET_W-1:0]    response_o,
    output logic                              dropped_o,
    input  logic [$clog2(FLOWS)-1:0]          debug_flow_i,
    output logic [tonic_pkg::RECEPTION_W-1:0] debug_o
);
  localparam int unsigned F = $clog2(FLOWS);
  localparam int unsigned K = tonic_pkg::K;
  localparam int unsigned K_W = tonic_pkg::K_W;
  localparam int unsigned CUMULATIVE = 0;
  localparam int unsigned SELECTIVE_NACK = 2;
  localparam int unsigned TRIMMED = 3;
  localparam int unsigned GO_BACK_N = 4;
  localparam int unsigned READS = (DEBUG != 0) ? 3 : 2;

  // Time in ticks of 16 cycles.
  logic [27:0] now_q;
  logic [23:0] tick;
  assign tick = now_q[27:4];

  // The arrival, or the command, whose state has been read.
  logic         add_q, remove_q, valid_q, trimmed_q, marked_q;
  logic [F-1:0] flow_q, round_q, round_d;
  logic [23:0]  segment_q;
  logic [1:0]   times_sent_q;

  // ---------------------------------------------------------------- state
  // What an arrival alone writes, and two flags that a visit writes too. `in_use` alone is reset.
  localparam int unsigned MAIN_W = 24 + K + 24 + 1 + 24 + 24;
  tonic_pkg::reception_t old, arrived, visited_old, visited;
  logic [READS*MAIN_W-1:0] main;
  logic [READS*2-1:0]      flags;
  logic [READS-1:0]        in_use;
  logic [FLOWS-1:0]        in_use_q;
  logic                    is_set, writes, same;

  ram_mwnr #(.WIDTH(MAIN_W), .DEPTH(FLOWS), .WRITES(1), .READS(READS)) i_main (
      .clk(clk),
      .rst_n(rst_n),
      .we_i(writes),
      .waddr_i(flow_q),
      .wdata_i({
        arrived.expected, arrived.seen, arrived.delayed_at, arrived.is_reported, arrived.granted, arrived.notified_at
      }),
      .raddr_i((READS * F)'({debug_flow_i, round_d, flow_i})),
      .rdata_o(main)
  );
  ram_mwnr #(.WIDTH(2), .DEPTH(FLOWS), .WRITES(2), .READS(READS)) i_flags (
      .clk(clk),
      .rst_n(rst_n),
      .we_i({visited_old.in_use && !(writes && same), writes}),
      .waddr_i({round_q, flow_q}),
      .wdata_i({
        visited.is_delayed,
        visited.is_notified,
        (same && !is_set) ? visited.is_delayed : arrived.is_delayed,
        (same && !is_set) ? visited.is_notified : arrived.is_notified
      }),
      .raddr_i((READS * F)'({debug_flow_i, round_d, flow_i})),
      .rdata_o(flags)
  );
  always_ff @(posedge clk) begin
    if (!rst_n) in_use_q <= '0;
    else if (is_set) in_use_q[flow_q] <= add_q;
  end
  always_ff @(posedge clk) begin
    in_use[0] <= (is_set && flow_i == flow_q) ? add_q : in_use_q[flow_i];
    in_use[1] <= (is_set && round_d == flow_q) ? add_q : in_use_q[round_d];
    if (READS == 3) in_use[READS-1] <= (is_set && debug_flow_i == flow_q) ? add_q : in_use_q[debug_flow_i];
  end

  tonic_reception i_old (.in_use_i(in_use[0]), .main_i(main[0+:MAIN_W]), .flags_i(flags[0+:2]), .state_o(old));
  tonic_reception i_visited (
      .in_use_i(in_use[1]), .main_i(main[MAIN_W+:MAIN_W]), .flags_i(flags[2+:2]), .state_o(visited_old)
  );
  generate
    if (DEBUG != 0) begin : g_debug
      tonic_reception i_debug (
          .in_use_i(in_use[READS-1]), .main_i(main[2*MAIN_W+:MAIN_W]), .flags_i(flags[4+:2]), .state_o(debug_o)
      );
    end else begin : g_no_debug
      assign debug_o = '0;
    end
  endgenerate

  // ---------------------------------------------------------------- arrival
  logic [23:0] steps;
  logic        is_known, is_repeat, is_outside, is_no_data, is_in_order, is_seen, is_misplaced, is_early, closes_gap;
  assign is_set = add_q || remove_q;
  assign is_known = valid_q && old.in_use && (!trimmed_q || KIND == TRIMMED);
  assign steps = segment_q - old.expected;
  assign is_seen = old.seen[segment_q[K_W-1:0]];
  assign is_outside = !steps[23] && steps >= 24'(K);
  assign is_no_data = !steps[23] && !is_outside && trimmed_q;
  assign is_in_order = steps == 24'd0 && !trimmed_q;
  assign is_misplaced = KIND == GO_BACK_N && !steps[23] && !is_outside && steps != 24'd0;
  assign is_repeat = steps[23] || (!is_outside && !is_no_data && !is_in_order && !is_misplaced && is_seen);
  assign is_early = !is_outside && !is_no_data && !is_in_order && !is_misplaced && !is_repeat;
  assign closes_gap = old.seen != '0;
  assign writes = is_known || is_set;

  // The run of early segments after the expected one depends on stored state alone.
  logic [K_W-1:0] after, stop, run;
  logic           found;
  logic [K-1:0]   run_map;
  assign after = old.expected[K_W-1:0] + K_W'(1);
  first_in_ring #(.W(K)) i_run (.map_i(~old.seen), .head_i(after), .found_o(found), .position_o(stop));
  assign run = stop - after;
  range_mask #(.W(K)) i_mask (.from_i(after), .count_i({1'b0, run}), .mask_o(run_map));

  logic               may_wait, is_recent, has_packet, notifies;
  tonic_pkg::packet_t packet;
  logic [23:0]        since_notified, expected;
  assign since_notified = tick - old.notified_at;
  assign is_recent = old.is_notified && (since_notified[23] || since_notified < interval_i);
  assign notifies = is_known && marked_q && !is_recent;
  assign may_wait = KIND == CUMULATIVE && is_in_order && delay_i != 24'd0 && !old.is_delayed && !closes_gap;
  assign expected = is_in_order ? (old.expected + 24'(run) + 24'd1) : old.expected;

  always_comb begin
    arrived = old;
    arrived.expected = expected;
    if (is_early) arrived.seen[segment_q[K_W-1:0]] = 1'b1;
    if (is_in_order) arrived.seen = old.seen & ~run_map;
    arrived.is_delayed = may_wait;
    if (may_wait) arrived.delayed_at = tick;
    if (KIND == GO_BACK_N && (is_misplaced || is_outside)) arrived.is_reported = 1'b1;
    if (KIND == GO_BACK_N && is_in_order) arrived.is_reported = 1'b0;
    if (KIND == TRIMMED) arrived.granted = old.granted + 24'd1;
    if (notifies) begin
      arrived.is_notified = 1'b1;
      arrived.notified_at = tick;
    end
    if (is_set) begin
      arrived = '0;
      arrived.expected = add_q ? segment_q : 24'd0;
    end
  end

  always_comb begin
    packet = '0;
    has_packet = !may_wait && !(KIND == GO_BACK_N && (is_misplaced || is_outside) && old.is_reported);
    if (has_packet) begin
      packet.ack = !(KIND == TRIMMED && is_no_data) && !(KIND == GO_BACK_N && (is_misplaced || is_outside));
      packet.nack = (KIND == GO_BACK_N && (is_misplaced || is_outside)) ||
          (KIND == SELECTIVE_NACK && (is_early || is_outside));
      packet.trimmed = KIND == TRIMMED && is_no_data;
      packet.sacked = KIND != CUMULATIVE && is_early;
      packet.cum = expected;
      packet.sack = ((KIND != CUMULATIVE && is_early) || (KIND == TRIMMED && is_no_data)) ? segment_q : 24'd0;
      packet.times_sent = times_sent_q;
      packet.has_grant = KIND == TRIMMED;
      packet.grant = (KIND == TRIMMED) ? arrived.granted : 24'd0;
    end
    packet.cnp = notifies;
  end

  // ---------------------------------------------------------------- visit
  tonic_pkg::reception_t seen_by_visit;
  tonic_pkg::packet_t    late_packet;
  logic                  has_response, is_due;
  logic [23:0]           since_delayed, since_old_notice;
  assign same = flow_q == round_q;
  assign seen_by_visit = (is_known && same) ? arrived : visited_old;
  assign has_response = is_known && (has_packet || notifies);
  assign since_delayed = tick - seen_by_visit.delayed_at;
  assign since_old_notice = tick - seen_by_visit.notified_at;
  assign is_due = KIND == CUMULATIVE && seen_by_visit.in_use && seen_by_visit.is_delayed && !(is_set && same) &&
      !since_delayed[23] && since_delayed >= delay_i;
  assign round_d = (is_due && has_response) ? round_q : (round_q + F'(1));
  always_comb begin
    visited = seen_by_visit;
    if (!since_old_notice[23] && since_old_notice >= interval_i) visited.is_notified = 1'b0;
    if (is_due && !has_response) visited.is_delayed = 1'b0;
    late_packet = '0;
    late_packet.ack = 1'b1;
    late_packet.cum = seen_by_visit.expected;
  end

  // ---------------------------------------------------------------- outputs
  assign dropped_o = valid_q && (!is_known || is_outside || is_misplaced);

  always_ff @(posedge clk) begin
    if (!rst_n) begin
      now_q <= 28'd0;
      add_q <= 1'b0;
      remove_q <= 1'b0;
      valid_q <= 1'b0;
      round_q <= '0;
      response_valid_o <= 1'b0;
    end else begin
      now_q <= now_q + 28'd1;
      add_q <= add_i;
      remove_q <= remove_i && !add_i;
      valid_q <= arrival_valid_i && !add_i && !remove_i;
      round_q <= round_d;
      response_valid_o <= has_response || is_due;
    end
    flow_q <= flow_i;
    segment_q <= segment_i;
    times_sent_q <= times_sent_i;
    trimmed_q <= is_trimmed_i;
    marked_q <= is_marked_i;
    response_flow_o <= has_response ? flow_q : round_q;
    response_o <= has_response ? packet : late_packet;
  end

`ifndef SYNTHESIS
  always_ff @(posedge clk) begin
    if (rst_n && is_known) begin
      // Otherwise the expected segment has arrived.
      assert (!old.seen[old.expected[K_W-1:0]]);
      // Otherwise all segments have arrived.
      assert (found);
    end
  end
`endif
endmodule
