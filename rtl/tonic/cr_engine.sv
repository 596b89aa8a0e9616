// Credit: when the next address of a flow is passed on to the link.
//
// Source: Tonic, section 3.3; the model is crates/rnic-tonic/src/cr.rs, equal in every cycle. Modules work side by
// side, each on a flow of its own: Transmit (xmit), Enqueue or a command (enq), parameters set for a packet (inc) and
// by a visit (per), a timer that has expired (due). What data delivery sends takes a cycle on the wires and one to
// memory; the parameters of a visit come a cycle later, out of a register in data delivery.
//
// Three credit schemes, chosen by the program. With windows an address leaves when its flow's turn comes. With rates a
// flow that lacks credit waits in the timing wheel; the division that says how long takes five cycles. With tokens a
// flow waits until its receiver or a timeout grants more.
//
// Initiation interval 1 for all inputs. `address_valid_o` stays until `address_ready_i`.
module cr_engine #(
    parameter int unsigned FLOWS = 1024,
    parameter int unsigned DEBUG = 0
) (
    input  logic                                clk,
    input  logic                                rst_n,
    input  logic [23:0]                         now_i,
    input  logic [22:0]                         first_rate_i,
    // From data delivery.
    input  logic                                forward_valid_i,
    input  logic [$clog2(FLOWS)-1:0]            forward_flow_i,
    input  tonic_pkg::forward_t                 forward_i,
    input  logic                                incoming_valid_i,
    input  logic [$clog2(FLOWS)-1:0]            incoming_flow_i,
    input  tonic_pkg::parameters_t              incoming_i,
    input  logic                                periodic_valid_i,
    input  logic [$clog2(FLOWS)-1:0]            periodic_flow_i,
    input  tonic_pkg::parameters_t              periodic_i,
    // To data delivery: an address of this flow enters the output register.
    output logic                                departed_valid_o,
    output logic [$clog2(FLOWS)-1:0]            departed_flow_o,
    // To the link.
    output logic                                address_valid_o,
    output logic [$clog2(FLOWS)-1:0]            address_flow_o,
    output logic [23:0]                         address_segment_o,
    output logic [1:0]                          address_times_sent_o,
    input  logic                                address_ready_i,
    // Pulses: transmitted, waits of Transmit and of others.
    output logic [2:0]                          stats_o,
    // State of `debug_flow_i` after this cycle, in the next one.
    input  logic [$clog2(FLOWS)-1:0]            debug_flow_i,
    output tonic_pkg::ring_t                    debug_ring_o,
    output tonic_pkg::credit_t                  debug_credit_o
);
  localparam int unsigned F = $clog2(FLOWS);
  localparam int unsigned N_W = tonic_pkg::N_W;
  localparam int unsigned COUNT_W = tonic_pkg::COUNT_W;
  localparam int unsigned ENTRY_W = tonic_pkg::ENTRY_W;
  localparam int unsigned RING_W = tonic_pkg::RING_W;
  localparam int unsigned CREDIT_W = tonic_pkg::CREDIT_W;
  localparam logic HAS_RATE = tonic_user_pkg::SCHEME == tonic_pkg::SCHEME_RATE;
  localparam logic HAS_TOKENS = tonic_user_pkg::SCHEME == tonic_pkg::SCHEME_TOKEN;

  // ---------------------------------------------------------------- stages
  logic [2:0]             enq_valid_q, inc_valid_q;
  logic [1:0]             per_valid_q;
  logic [F-1:0]           enq_wire_flow_q, enq_fetch_flow_q, flow_enq;
  logic [F-1:0]           inc_wire_flow_q, inc_fetch_flow_q, flow_inc;
  logic [F-1:0]           per_fetch_flow_q, flow_per;
  tonic_pkg::forward_t    enq_wire_q, enq_fetch_q, entered;
  tonic_pkg::parameters_t inc_wire_q, inc_fetch_q, set_inc;
  tonic_pkg::parameters_t per_fetch_q, set_per;

  always_ff @(posedge clk) begin
    enq_valid_q <= rst_n ? {enq_valid_q[1:0], forward_valid_i} : 3'd0;
    inc_valid_q <= rst_n ? {inc_valid_q[1:0], incoming_valid_i} : 3'd0;
    per_valid_q <= rst_n ? {per_valid_q[0], periodic_valid_i} : 2'd0;
    {flow_enq, enq_fetch_flow_q, enq_wire_flow_q} <= {enq_fetch_flow_q, enq_wire_flow_q, forward_flow_i};
    {flow_inc, inc_fetch_flow_q, inc_wire_flow_q} <= {inc_fetch_flow_q, inc_wire_flow_q, incoming_flow_i};
    {flow_per, per_fetch_flow_q} <= {per_fetch_flow_q, periodic_flow_i};
    entered <= enq_fetch_q;
    enq_fetch_q <= enq_wire_q;
    enq_wire_q <= forward_i;
    set_inc <= inc_fetch_q;
    inc_fetch_q <= inc_wire_q;
    inc_wire_q <= incoming_i;
    set_per <= per_fetch_q;
    per_fetch_q <= periodic_i;
  end

  logic         turn_valid, turn_extra, is_blocked;
  logic [F-1:0] flow_xmit, flow_due, turn_fetch_flow;
  logic         valid_xmit, valid_enq, valid_inc, valid_per;
  assign is_blocked = address_valid_o && !address_ready_i;
  assign valid_xmit = turn_valid && !is_blocked;
  assign valid_enq = enq_valid_q[2];
  assign valid_inc = inc_valid_q[2];
  assign valid_per = per_valid_q[1];

  // ---------------------------------------------------------------- state of the flows
  logic [5*RING_W-1:0]   rings;
  logic [5*CREDIT_W-1:0] credits;
  tonic_pkg::ring_t      ring_xmit, ring_enq, ring_inc, ring_per;
  tonic_pkg::credit_t    credit_xmit, credit_enq, credit_inc, credit_per;
  tonic_pkg::credit_t    next_xmit, next_enq, next_inc, next_per;
  logic [N_W-1:0]        head_xmit, head_enq;
  logic [COUNT_W-1:0]    count_xmit, count_enq;
  assign ring_xmit = rings[0*RING_W+:RING_W];
  assign ring_enq = rings[1*RING_W+:RING_W];
  assign ring_inc = rings[2*RING_W+:RING_W];
  assign ring_per = rings[3*RING_W+:RING_W];
  assign debug_ring_o = rings[4*RING_W+:RING_W];
  assign credit_xmit = credits[0*CREDIT_W+:CREDIT_W];
  assign credit_enq = credits[1*CREDIT_W+:CREDIT_W];
  assign credit_inc = credits[2*CREDIT_W+:CREDIT_W];
  assign credit_per = credits[3*CREDIT_W+:CREDIT_W];
  assign debug_credit_o = credits[4*CREDIT_W+:CREDIT_W];

  logic same_xmit_enq, same_xmit_inc, same_xmit_per, same_enq_inc, same_enq_per, same_inc_per;
  assign same_xmit_enq = flow_xmit == flow_enq;
  assign same_xmit_inc = flow_xmit == flow_inc;
  assign same_xmit_per = flow_xmit == flow_per;
  assign same_enq_inc = flow_enq == flow_inc;
  assign same_enq_per = flow_enq == flow_per;
  assign same_inc_per = flow_inc == flow_per;

  // ---------------------------------------------------------------- events
  logic leaves, enters, is_command, is_add, is_remove, is_set;
  assign is_command = valid_enq && entered.is_command;
  assign enters = valid_enq && !entered.is_command;
  assign is_add = is_command && (entered.kind == tonic_pkg::COMMAND_ADD);
  assign is_remove = is_command && (entered.kind == tonic_pkg::COMMAND_REMOVE);
  assign is_set = is_add || is_remove;

  tonic_pkg::entry_t oldest;
  logic              is_ready_xmit;
  logic [39:0]       left_credit;
  assign oldest = ring_xmit.entries[ring_xmit.head*ENTRY_W+:ENTRY_W];
  assign leaves = valid_xmit && (ring_xmit.count != '0) && is_ready_xmit;

  // Settings after the events of this cycle, of Transmit's flow without its departure.
  tonic_pkg::credit_t changed_xmit;
  cr_settings i_settings_xmit (
      .credit_i(credit_xmit),
      .has_inc_i(valid_inc && same_xmit_inc),
      .inc_i(set_inc),
      .has_per_i(valid_per && same_xmit_per),
      .per_i(set_per),
      .has_command_i(is_command && same_xmit_enq),
      .command_i(entered),
      .first_rate_i(first_rate_i),
      .now_i(now_i),
      .credit_o(changed_xmit)
  );
  cr_settings i_settings_enq (
      .credit_i(credit_enq),
      .has_inc_i(valid_inc && same_enq_inc),
      .inc_i(set_inc),
      .has_per_i(valid_per && same_enq_per),
      .per_i(set_per),
      .has_command_i(is_command),
      .command_i(entered),
      .first_rate_i(first_rate_i),
      .now_i(now_i),
      .credit_o(next_enq)
  );
  cr_settings i_settings_inc (
      .credit_i(credit_inc),
      .has_inc_i(valid_inc),
      .inc_i(set_inc),
      .has_per_i(valid_per && same_inc_per),
      .per_i(set_per),
      .has_command_i(is_command && same_enq_inc),
      .command_i(entered),
      .first_rate_i(first_rate_i),
      .now_i(now_i),
      .credit_o(next_inc)
  );
  cr_settings i_settings_per (
      .credit_i(credit_per),
      .has_inc_i(valid_inc && same_inc_per),
      .inc_i(set_inc),
      .has_per_i(valid_per),
      .per_i(set_per),
      .has_command_i(is_command && same_enq_per),
      .command_i(entered),
      .first_rate_i(first_rate_i),
      .now_i(now_i),
      .credit_o(next_per)
  );
  always_comb begin
    next_xmit = changed_xmit;
    if (leaves && !(is_set && same_xmit_enq)) begin
      next_xmit.sent = credit_xmit.sent + 24'd1;
      next_xmit.credit = left_credit;
      next_xmit.since = now_i;
    end
  end

  logic has_entered_xmit, is_set_xmit;
  assign has_entered_xmit = enters && same_xmit_enq;
  assign is_set_xmit = is_set && same_xmit_enq;
  assign head_xmit = is_set_xmit ? '0 : (ring_xmit.head + N_W'(leaves));
  assign count_xmit = is_set_xmit ? '0 : (ring_xmit.count + COUNT_W'(has_entered_xmit) - COUNT_W'(leaves));
  assign head_enq = is_set ? '0 : ring_enq.head;
  assign count_enq = is_set ? '0 : (ring_enq.count + COUNT_W'(enters));

  // Which module writes.
  logic own_enq, own_inc, own_per;
  assign own_enq = valid_enq && !(valid_xmit && same_xmit_enq);
  assign own_inc = valid_inc && !(valid_xmit && same_xmit_inc) && !(valid_enq && same_enq_inc);
  assign own_per = valid_per && !(valid_xmit && same_xmit_per) && !(valid_enq && same_enq_per) &&
      !(valid_inc && same_inc_per);

  cr_context #(.FLOWS(FLOWS), .DEBUG(DEBUG)) i_context (
      .clk(clk),
      .rst_n(rst_n),
      .next_flow_i({
        debug_flow_i, per_fetch_flow_q, inc_fetch_flow_q, enq_fetch_flow_q, turn_fetch_flow
      }),
      .flow_i({flow_per, flow_inc, flow_enq, flow_xmit}),
      .we_entry_i(enters),
      .entry_place_i(ring_enq.head + ring_enq.count[N_W-1:0]),
      .entry_i(entered.entry),
      .we_place_i({own_enq, valid_xmit}),
      .we_bytes_i(is_command),
      .we_pace_i({valid_per && !(is_set && same_enq_per), valid_inc && !(is_set && same_enq_inc), is_set}),
      .we_fill_i({is_set && own_enq, leaves || (valid_xmit && is_set_xmit)}),
      .we_granted_i({valid_inc && !(is_set && same_enq_inc), is_set}),
      .we_extra_i({valid_per && !(is_set && same_enq_per), is_set}),
      .we_sent_i({is_set && own_enq, leaves || (valid_xmit && is_set_xmit)}),
      .head_i({head_enq, head_xmit}),
      .count_i({count_enq, count_xmit}),
      .credit_i({next_per, next_inc, next_enq, next_xmit}),
      .ring_o(rings),
      .credit_o(credits)
  );

  // ---------------------------------------------------------------- ready set
  // A flow is inserted when it may send, by the first of the modules that work on it.
  logic       is_main, wanted_xmit, wanted_enq, wanted_inc, wanted_per;
  logic [3:0] activate, has_turn;
  assign is_main = valid_xmit && !turn_extra;

  flow_turns #(.FLOWS(FLOWS)) i_ready (
      .clk(clk),
      .rst_n(rst_n),
      .settle_i(is_main),
      .wanted_i(wanted_xmit),
      .activate_i(activate),
      .flow_i({flow_per, HAS_RATE ? flow_due : flow_inc, flow_enq, flow_xmit}),
      .advance_i(!is_blocked),
      .free_i(1'b1),
      .has_turn_o(has_turn),
      .fetch_flow_o(turn_fetch_flow),
      .valid_o(turn_valid),
      .is_extra_o(turn_extra),
      .flow_o(flow_xmit)
  );

  generate
    if (HAS_RATE) begin : g_rate
      logic is_due;
      cr_rate #(.FLOWS(FLOWS)) i_rate (
          .clk(clk),
          .rst_n(rst_n),
          .now_i(now_i),
          .valid_xmit_i(valid_xmit),
          .is_extra_i(turn_extra),
          .flow_xmit_i(flow_xmit),
          .ring_xmit_i(ring_xmit),
          .credit_xmit_i(credit_xmit),
          .changed_xmit_i(changed_xmit),
          .leaves_i(leaves),
          .has_entered_xmit_i(has_entered_xmit),
          .count_xmit_i(count_xmit),
          .own_enq_i(own_enq),
          .flow_enq_i(flow_enq),
          .ring_enq_i(ring_enq),
          .stored_enq_i(credit_enq),
          .credit_enq_i(next_enq),
          .enters_i(enters),
          .count_enq_i(count_enq),
          .entry_i(entered.entry),
          .has_turn_i(has_turn[1:0]),
          .is_ready_o(is_ready_xmit),
          .left_credit_o(left_credit),
          .wanted_xmit_o(wanted_xmit),
          .wanted_enq_o(wanted_enq),
          .due_o(is_due),
          .flow_due_o(flow_due),
          .waits_o(stats_o[2:1])
      );
      assign wanted_inc = 1'b0;
      assign wanted_per = 1'b0;
      assign activate = {1'b0, is_due, wanted_enq, valid_xmit && turn_extra && wanted_xmit};
    end else begin : g_no_rate
      assign flow_due = '0;
      assign left_credit = 40'd0;
      assign stats_o[2:1] = 2'b00;
      assign activate = {wanted_per, wanted_inc, wanted_enq, valid_xmit && turn_extra && wanted_xmit};
      if (HAS_TOKENS) begin : g_tokens
        logic has_xmit, has_enq, has_inc, has_per;
        cr_tokens i_now (.credit_i(credit_xmit), .has_tokens_o(is_ready_xmit));
        cr_tokens i_xmit (.credit_i(next_xmit), .has_tokens_o(has_xmit));
        cr_tokens i_enq (.credit_i(next_enq), .has_tokens_o(has_enq));
        cr_tokens i_inc (.credit_i(next_inc), .has_tokens_o(has_inc));
        cr_tokens i_per (.credit_i(next_per), .has_tokens_o(has_per));
        assign wanted_xmit = count_xmit != '0 && has_xmit;
        assign wanted_enq = own_enq && count_enq != '0 && has_enq;
        assign wanted_inc = own_inc && ring_inc.count != '0 && has_inc;
        assign wanted_per = own_per && ring_per.count != '0 && has_per;
      end else begin : g_window
        assign is_ready_xmit = 1'b1;
        assign wanted_xmit = count_xmit != '0;
        assign wanted_enq = own_enq && count_enq != '0;
        assign wanted_inc = 1'b0;
        assign wanted_per = 1'b0;
      end
    end
  endgenerate

  // ---------------------------------------------------------------- output
  assign departed_valid_o = leaves;
  assign departed_flow_o = flow_xmit;
  assign stats_o[0] = leaves;

  always_ff @(posedge clk) begin
    if (!rst_n) address_valid_o <= 1'b0;
    else if (!is_blocked) address_valid_o <= leaves;
    if (!is_blocked) begin
      address_flow_o <= flow_xmit;
      address_segment_o <= oldest.segment;
      address_times_sent_o <= oldest.times_sent;
    end
  end

`ifndef SYNTHESIS
  always_ff @(posedge clk) begin
    // Otherwise no place in a ring.
    if (rst_n && enters) assert (ring_enq.count < COUNT_W'(tonic_pkg::N));
    if (rst_n && valid_xmit && ring_xmit.count != '0) begin
      // Otherwise more than N addresses in a ring.
      assert (ring_xmit.count <= COUNT_W'(tonic_pkg::N));
    end
    // Otherwise a packet and a visit of one flow.
    if (rst_n) assert (!(valid_inc && valid_per && same_inc_per));
  end
`endif
endmodule
