// Data delivery: which segment a flow sends next.
//
// Source: Tonic, sections 3.2 and 3.4; the model is crates/rnic-tonic/src/dd.rs, equal in every cycle. Five modules
// work side by side, each on a flow of its own choice: Segment Generation, or a command (gen), the second stage of
// Incoming (inc), Periodic Updates (per), Segment Transmitted (dep), the first stage of Incoming (ack). In a cycle all
// of them read, all compute, the results of one flow are merged, and all is written; a read of memory, one cycle
// earlier, sees the writes of its own cycle.
//
// A function of the program takes most of a cycle. It runs in a stage of its own, for a packet (run) and for a visit
// (vis), and its answer, the next state of the program and the state of the flow after that cycle stand in registers
// when inc and per merge and write them. What runs in that cycle for the same flow sees their settings.
//
// Initiation interval: a packet, a command, a departure and a visit in each cycle, and a segment in each cycle without
// a command. Latencies: packet to program 3 cycles, and to its effect 4, command to its effect 2, set to address 2.
// Outputs are combinational, and belong into registers.
module dd_engine #(
    parameter int unsigned FLOWS = 1024,
    parameter int unsigned WHOLE_GROUPS = 0,
    parameter int unsigned DEBUG = 0
) (
    input  logic                                clk,
    input  logic                                rst_n,
    input  logic [tonic_user_pkg::CONFIG_W-1:0] config_i,
    input  logic [22:0]                         link_rate_i,
    input  logic [23:0]                         tick_i,
    // From the driver.
    input  logic                                command_valid_i,
    input  logic [$clog2(FLOWS)-1:0]            command_flow_i,
    input  tonic_pkg::command_t                 command_i,
    // From receivers.
    input  logic                                packet_valid_i,
    input  logic [$clog2(FLOWS)-1:0]            packet_flow_i,
    input  tonic_pkg::packet_t                  packet_i,
    // From the credit engine: an address of this flow has left.
    input  logic                                departed_valid_i,
    input  logic [$clog2(FLOWS)-1:0]            departed_flow_i,
    // To the credit engine: an address or a command; parameters set for a packet, and by a visit.
    output logic                                forward_valid_o,
    output logic [$clog2(FLOWS)-1:0]            forward_flow_o,
    output tonic_pkg::forward_t                 forward_o,
    output logic                                incoming_valid_o,
    output logic [$clog2(FLOWS)-1:0]            incoming_flow_o,
    output tonic_pkg::parameters_t              incoming_o,
    output logic                                periodic_valid_o,
    output logic [$clog2(FLOWS)-1:0]            periodic_flow_o,
    output tonic_pkg::parameters_t              periodic_o,
    // Pulses: generated, of which repeats, packets, ignored ones, ones of unknown flows, timeouts, dropped visits.
    output logic [6:0]                          stats_o,
    // State of `debug_flow_i` after this cycle, in the next one.
    input  logic [$clog2(FLOWS)-1:0]            debug_flow_i,
    output tonic_pkg::window_t                  debug_window_o,
    output tonic_pkg::duty_t                    debug_duty_o,
    output logic [tonic_user_pkg::STATE_W-1:0]  debug_state_o,
    // Events of this cycle, of each flow that has any: first stage, second stage, visit, generation, departure; then
    // conflicts where the program runs.
    output logic [29:0]                         debug_events_o
);
  localparam int unsigned F = $clog2(FLOWS);
  localparam int unsigned K = tonic_pkg::K;
  localparam int unsigned SIZE_W = tonic_pkg::SIZE_W;
  localparam int unsigned COUNT_W = tonic_pkg::COUNT_W;
  localparam int unsigned U = tonic_user_pkg::STATE_W;
  localparam int unsigned WINDOW_W = tonic_pkg::WINDOW_W;
  localparam int unsigned DUTY_W = tonic_pkg::DUTY_W;
  localparam logic HAS_RATE = tonic_user_pkg::SCHEME == tonic_pkg::SCHEME_RATE;
  localparam logic HAS_TOKENS = tonic_user_pkg::SCHEME == tonic_pkg::SCHEME_TOKEN;

  // Stages.
  logic                command_fetch_valid_q, command_valid_q;
  logic [F-1:0]        command_fetch_flow_q, command_flow_q;
  tonic_pkg::command_t command_fetch_q, command_q;
  logic                packet_fetch_valid_q, packet_valid_q;
  logic [F-1:0]        packet_fetch_flow_q, packet_flow_q;
  tonic_pkg::packet_t  packet_fetch_q, packet_q;
  logic                second_valid_q, second_sack_new_q;
  logic [F-1:0]        second_flow_q;
  tonic_pkg::packet_t  second_packet_q;
  logic [23:0]         second_start_q, second_old_start_q;
  logic [8:0]          second_newly_q;
  logic [2:0]          departed_valid_q;
  logic [F-1:0]        departed_wire_q, departed_fetch_q, departed_flow_q;
  logic [F-1:0]        visit_next_q, visit_fetch_q, visit_flow_q;
  logic                visit_fetch_retry_q, visit_retry_q;
  logic                turn_valid, turn_extra;
  logic [F-1:0]        turn_flow, turn_fetch_flow;

  // The flow and the state of each module.
  logic [F-1:0]           flow_gen, flow_inc, flow_per, flow_dep, flow_ack, flow_run, flow_vis;
  tonic_pkg::window_t     window_gen, window_inc, window_per, window_dep, window_ack, window_run, window_vis;
  tonic_pkg::duty_t       duty_gen, duty_inc, duty_per, duty_dep, duty_ack, duty_run, duty_vis;
  logic [U-1:0]           state_inc, state_per, state_run, state_vis;
  tonic_pkg::window_t     merged_window_gen, merged_window_inc, merged_window_per, merged_window_ack;
  tonic_pkg::window_t     merged_window_run, merged_window_vis, seen_window_run, seen_window_vis;
  tonic_pkg::duty_t       merged_duty_gen, merged_duty_inc, merged_duty_per, merged_duty_ack;
  tonic_pkg::duty_t       merged_duty_run, merged_duty_vis, seen_duty_run, seen_duty_vis;
  tonic_pkg::window_t     next_window_gen;
  tonic_pkg::duty_t       next_duty_gen, next_duty_dep;
  logic [U-1:0]           next_state_gen, next_state_run, next_state_vis, seen_state_run, seen_state_vis;
  logic [6*WINDOW_W-1:0]  windows;
  logic [6*DUTY_W-1:0]    duties;
  logic [6*U-1:0]         states;

  assign flow_gen = command_valid_q ? command_flow_q : turn_flow;
  assign flow_run = second_flow_q;
  assign flow_vis = visit_flow_q;
  assign flow_dep = departed_flow_q;
  assign flow_ack = packet_flow_q;

  assign window_gen = windows[0*WINDOW_W+:WINDOW_W];
  assign window_run = windows[1*WINDOW_W+:WINDOW_W];
  assign window_vis = windows[2*WINDOW_W+:WINDOW_W];
  assign window_dep = windows[3*WINDOW_W+:WINDOW_W];
  assign window_ack = windows[4*WINDOW_W+:WINDOW_W];
  assign duty_gen = duties[0*DUTY_W+:DUTY_W];
  assign duty_run = duties[1*DUTY_W+:DUTY_W];
  assign duty_vis = duties[2*DUTY_W+:DUTY_W];
  assign duty_dep = duties[3*DUTY_W+:DUTY_W];
  assign duty_ack = duties[4*DUTY_W+:DUTY_W];
  assign state_run = states[1*U+:U];
  assign state_vis = states[2*U+:U];
  assign debug_window_o = windows[5*WINDOW_W+:WINDOW_W];
  assign debug_duty_o = duties[5*DUTY_W+:DUTY_W];
  assign debug_state_o = states[5*U+:U];

  // ---------------------------------------------------------------- modules
  logic                       is_add, is_remove, is_limit, is_set, is_live_gen;
  logic                       found, generated;
  tonic_pkg::generated_t      segment;
  logic                       valid_inc, valid_per, valid_dep, valid_ack, valid_run, valid_vis;
  logic                       is_known, is_acknowledged, expired_vis, expired_per, has_grant_inc;
  logic [23:0]                grant_inc;
  tonic_pkg::acknowledged_t   acknowledged;
  tonic_pkg::answer_t         answer_inc, answer_per, answer_run, answer_vis;

  assign is_add = command_valid_q && (command_q.kind == tonic_pkg::COMMAND_ADD);
  assign is_remove = command_valid_q && (command_q.kind == tonic_pkg::COMMAND_REMOVE);
  assign is_set = is_add || is_remove;
  assign is_live_gen = (command_valid_q || turn_valid) && window_gen.in_use;
  assign is_limit = command_valid_q && window_gen.in_use && (command_q.kind == tonic_pkg::COMMAND_LIMIT);

  dd_generate i_generate (.window_i(window_gen), .duty_i(duty_gen), .found_o(found), .segment_o(segment));
  assign generated = turn_valid && window_gen.in_use && !duty_gen.idle && !duty_gen.back_pressured && found;

  assign valid_run = second_valid_q && window_run.in_use;
  dd_incoming1 i_incoming1 (
      .config_i(config_i),
      .now_i(tick_i),
      .packet_i(second_packet_q),
      .start_i(second_start_q),
      .old_start_i(second_old_start_q),
      .newly_i(second_newly_q),
      .sack_new_i(second_sack_new_q),
      .window_i(seen_window_run),
      .duty_i(seen_duty_run),
      .state_i(seen_state_run),
      .state_o(next_state_run),
      .answer_o(answer_run)
  );

  assign valid_vis = window_vis.in_use;
  dd_periodic i_periodic (
      .config_i(config_i),
      .now_i(tick_i),
      .window_i(seen_window_vis),
      .duty_i(seen_duty_vis),
      .state_i(seen_state_vis),
      .expired_o(expired_vis),
      .state_o(next_state_vis),
      .answer_o(answer_vis)
  );

  assign valid_dep = departed_valid_q[2] && window_dep.in_use;

  assign is_known = packet_valid_q && window_ack.in_use;
  dd_incoming0 i_incoming0 (
      .window_i(window_ack), .packet_i(packet_q), .valid_o(is_acknowledged), .result_o(acknowledged)
  );
  assign valid_ack = is_known && is_acknowledged;

  // ---------------------------------------------------------------- conflicts
  // Modules that work on the same flow.
  logic same_gen_inc, same_gen_per, same_gen_dep, same_gen_ack, same_inc_dep, same_inc_ack, same_per_dep, same_per_ack;
  logic same_dep_ack, same_gen_run, same_inc_run, same_dep_run, same_ack_run;
  logic same_gen_vis, same_inc_vis, same_dep_vis, same_ack_vis, same_run_vis;
  assign same_gen_inc = flow_gen == flow_inc;
  assign same_gen_per = flow_gen == flow_per;
  assign same_gen_dep = flow_gen == flow_dep;
  assign same_gen_ack = flow_gen == flow_ack;
  assign same_inc_dep = flow_inc == flow_dep;
  assign same_inc_ack = flow_inc == flow_ack;
  assign same_per_dep = flow_per == flow_dep;
  assign same_per_ack = flow_per == flow_ack;
  assign same_dep_ack = flow_dep == flow_ack;
  assign same_gen_run = flow_gen == flow_run;
  assign same_inc_run = flow_inc == flow_run;
  assign same_dep_run = flow_dep == flow_run;
  assign same_ack_run = flow_ack == flow_run;
  assign same_gen_vis = flow_gen == flow_vis;
  assign same_inc_vis = flow_inc == flow_vis;
  assign same_dep_vis = flow_dep == flow_vis;
  assign same_ack_vis = flow_ack == flow_vis;
  assign same_run_vis = flow_run == flow_vis;

  // What the program sees: settings and state of an answer that is being written.
  always_comb begin
    seen_window_run = window_run;
    seen_duty_run = duty_run;
    seen_state_run = state_run;
    if (valid_inc && same_inc_run) begin
      seen_window_run.size = answer_inc.size;
      seen_duty_run.rate = answer_inc.rate;
      seen_duty_run.timer = answer_inc.timer;
      seen_state_run = state_inc;
    end
    seen_window_vis = window_vis;
    seen_duty_vis = duty_vis;
    seen_state_vis = state_vis;
    if (valid_inc && same_inc_vis) begin
      seen_window_vis.size = answer_inc.size;
      seen_duty_vis.rate = answer_inc.rate;
      seen_duty_vis.timer = answer_inc.timer;
      seen_state_vis = state_inc;
      // A timer that this answer stops or restarts does not expire.
      if (answer_inc.restart || answer_inc.timer == 24'd0) seen_duty_vis.timer_on = 1'b0;
    end
  end

  // A visit is dropped while a packet of its flow is processed: acknowledgements win over timeouts. So per has never the
  // flow of inc, nor of run, whose packet was in the first stage when the visit was made.
  logic is_dropped, taken;
  assign is_dropped = valid_vis && ((valid_ack && same_ack_vis) || (valid_run && same_run_vis));
  assign taken = valid_vis && !is_dropped;

  // Segments that the program marks, of those outstanding before this cycle, and of one that is sent in it.
  logic [23:0]  sent_inc, sent_per;
  logic [K-1:0] marks_inc, marks_per, fresh_per, repeat_map, new_map;
  logic         is_new, is_repeat;
  assign sent_inc = window_inc.next - window_inc.start;
  assign sent_per = window_per.next - window_per.start;
  dd_marks i_marks_inc (
      .mark_i(answer_inc.mark),
      .first_i(answer_inc.first),
      .last_i(answer_inc.last),
      .start_i(window_inc.start),
      .sent_i(sent_inc[SIZE_W-1:0]),
      .marks_o(marks_inc)
  );
  dd_marks i_marks_per (
      .mark_i(answer_per.mark),
      .first_i(answer_per.first),
      .last_i(answer_per.last),
      .start_i(window_per.start),
      .sent_i(sent_per[SIZE_W-1:0]),
      .marks_o(marks_per)
  );
  assign is_new = generated && !segment.is_repeat;
  assign is_repeat = generated && segment.is_repeat;
  one_hot #(.W(K)) i_repeat (
      .enable_i(is_repeat), .position_i(segment.id[tonic_pkg::K_W-1:0]), .map_o(repeat_map)
  );
  one_hot #(.W(K)) i_new (
      .enable_i(1'b1), .position_i(window_gen.next[tonic_pkg::K_W-1:0]), .map_o(new_map)
  );

  // Events of the flow of each module that has a merge: vis, run, ack, per, inc, gen, from the highest bit on. Of vis
  // and of run, the merge is the state of the flow in the next cycle, in which per and inc have it; a visit that meets a
  // packet is dropped.
  logic [5:0] has_inc, has_per, has_ack, has_gen, has_dep;
  assign has_inc = {6{valid_inc}} & {same_inc_vis, same_inc_run, same_inc_ack, 1'b0, 1'b1, same_gen_inc};
  assign has_per = {6{valid_per}} & {1'b0, 1'b0, same_per_ack, 1'b1, 1'b0, same_gen_per};
  assign has_ack = {6{valid_ack}} & {1'b0, same_ack_run, 1'b1, same_per_ack, same_inc_ack, same_gen_ack};
  assign has_gen = {same_gen_vis, same_gen_run, same_gen_ack, same_gen_per, same_gen_inc, 1'b1};
  assign has_dep = {6{valid_dep}} &
      {same_dep_vis, same_dep_run, same_dep_ack, same_per_dep, same_inc_dep, same_gen_dep};

  logic restart_per;
  assign restart_per = answer_per.restart || expired_per;

`define TONIC_MERGE(NAME, NUMBER) \
  dd_merge i_merge_``NAME ( \
      .window_i(window_``NAME), \
      .duty_i(duty_``NAME), \
      .ack_i(has_ack[NUMBER]), \
      .ack_start_i(acknowledged.start), \
      .ack_acked_i(acknowledged.acked), \
      .ack_passed_i(acknowledged.passed), \
      .answer_i(has_inc[NUMBER] || has_per[NUMBER]), \
      .size_i(has_inc[NUMBER] ? answer_inc.size : answer_per.size), \
      .rate_i(has_inc[NUMBER] ? answer_inc.rate : answer_per.rate), \
      .timer_i(has_inc[NUMBER] ? answer_inc.timer : answer_per.timer), \
      .marks_i(has_inc[NUMBER] ? marks_inc : (has_per[NUMBER] ? marks_per : '0)), \
      .restart_i((has_inc[NUMBER] && answer_inc.restart) || (has_per[NUMBER] && restart_per)), \
      .new_i(is_new && has_gen[NUMBER]), \
      .new_map_i(new_map), \
      .repeat_i(is_repeat && has_gen[NUMBER]), \
      .repeat_place_i(segment.id[tonic_pkg::K_W-1:0]), \
      .repeat_map_i(has_gen[NUMBER] ? repeat_map : '0), \
      .times_sent_i(segment.times_sent), \
      .transmitted_i(has_dep[NUMBER]), \
      .limit_i(is_limit && has_gen[NUMBER]), \
      .limit_id_i(command_q.id), \
      .limit_short_i(command_q.bytes != 14'd0), \
      .now_i(tick_i), \
      .window_o(merged_window_``NAME), \
      .duty_o(merged_duty_``NAME), \
      .wants_o(wants_``NAME), \
      .fresh_o(fresh_``NAME) \
  )

  logic [K-1:0] fresh_gen, fresh_inc, fresh_ack, fresh_run, fresh_vis;
  logic         wants_gen, wants_inc, wants_per, wants_ack, wants_run, wants_vis;
  `TONIC_MERGE(gen, 0);
  `TONIC_MERGE(inc, 1);
  `TONIC_MERGE(per, 2);
  `TONIC_MERGE(ack, 3);
  `TONIC_MERGE(run, 4);
  `TONIC_MERGE(vis, 5);
`undef TONIC_MERGE

  // Answers, and the flows' state, on their way to be merged. A flow that is removed has none.
  logic               inc_valid_q, per_valid_q, inc_has_grant_q, per_expired_q;
  logic [F-1:0]       inc_flow_q, per_flow_q;
  logic [23:0]        inc_grant_q;
  tonic_pkg::answer_t inc_answer_q, per_answer_q;
  tonic_pkg::window_t inc_window_q, per_window_q;
  tonic_pkg::duty_t   inc_duty_q, per_duty_q;
  logic [U-1:0]       inc_state_q, per_state_q;
  always_ff @(posedge clk) begin
    inc_valid_q <= rst_n && valid_run && !(is_remove && same_gen_run);
    per_valid_q <= rst_n && taken && !(is_remove && same_gen_vis);
    inc_flow_q <= flow_run;
    per_flow_q <= flow_vis;
    inc_answer_q <= answer_run;
    per_answer_q <= answer_vis;
    inc_window_q <= merged_window_run;
    per_window_q <= merged_window_vis;
    inc_duty_q <= merged_duty_run;
    per_duty_q <= merged_duty_vis;
    inc_state_q <= next_state_run;
    per_state_q <= next_state_vis;
    inc_has_grant_q <= second_packet_q.has_grant;
    inc_grant_q <= second_packet_q.grant;
    per_expired_q <= expired_vis;
  end
  assign valid_inc = inc_valid_q;
  assign valid_per = per_valid_q;
  assign flow_inc = inc_flow_q;
  assign flow_per = per_flow_q;
  assign answer_inc = inc_answer_q;
  assign answer_per = per_answer_q;
  assign window_inc = inc_window_q;
  assign window_per = per_window_q;
  assign duty_inc = inc_duty_q;
  assign duty_per = per_duty_q;
  assign state_inc = inc_state_q;
  assign state_per = per_state_q;
  assign has_grant_inc = inc_has_grant_q;
  assign grant_inc = inc_grant_q;
  assign expired_per = per_expired_q;

  // A departure alone changes nothing but the count of addresses that wait.
  always_comb begin
    next_duty_dep = duty_dep;
    next_duty_dep.outstanding = duty_dep.outstanding - COUNT_W'(1);
    if (next_duty_dep.outstanding >= COUNT_W'(tonic_pkg::STOP)) next_duty_dep.back_pressured = 1'b1;
    else if (next_duty_dep.outstanding < COUNT_W'(tonic_pkg::START)) next_duty_dep.back_pressured = 1'b0;
    next_duty_dep.idle = (valid_ack && same_dep_ack) ? merged_duty_ack.idle : duty_dep.idle;
  end

  // Generation's results, or the state of a flow that is added or removed.
  logic [8:0]   first_window;
  logic [22:0]  first_rate;
  logic [23:0]  first_timer;
  logic [U-1:0] first_state;
  tonic_pkg::answer_t first;
  tonic_user_start i_start (
      .config_i(config_i), .state_o(first_state), .window_o(first_window), .rate_o(first_rate), .timer_o(first_timer)
  );
  dd_answer i_first (
      .mark_i(1'b0),
      .first_i(24'd0),
      .last_i(24'd0),
      .window_i(first_window),
      .rate_i((first_rate == 23'd0) ? link_rate_i : first_rate),
      .restart_i(1'b0),
      .timer_i(first_timer),
      .answer_o(first)
  );
  always_comb begin
    next_window_gen = merged_window_gen;
    next_duty_gen = merged_duty_gen;
    next_state_gen = is_add ? first_state : '0;
    // A group is written as a whole: with the state that another module has computed for this flow.
    if (WHOLE_GROUPS != 0 && !is_set) begin
      next_state_gen = states[0*U+:U];
      if (has_inc[0]) next_state_gen = state_inc;
      else if (has_per[0]) next_state_gen = state_per;
    end
    if (is_set) begin
      next_window_gen = '0;
      next_duty_gen = '0;
    end
    if (is_add) begin
      next_window_gen.in_use = 1'b1;
      next_window_gen.start = command_q.id;
      next_window_gen.next = command_q.id;
      next_window_gen.limit = command_q.id;
      next_window_gen.size = first.size;
      next_duty_gen.idle = 1'b1;
      next_duty_gen.timer = first.timer;
      next_duty_gen.rate = first.rate;
    end
  end

  // ---------------------------------------------------------------- memory
  logic active_gen, own_inc, own_per, own_ack;
  assign active_gen = is_live_gen || is_set;
  assign own_inc = valid_inc && !(active_gen && same_gen_inc);
  assign own_per = valid_per && !(active_gen && same_gen_per);
  assign own_ack = valid_ack && !(active_gen && same_gen_ack) && !(valid_inc && same_inc_ack) &&
      !(valid_per && same_per_ack);

  logic writes_hold;
  assign writes_hold = is_set || generated;

  dd_context #(.FLOWS(FLOWS), .WHOLE_GROUPS(WHOLE_GROUPS), .DEBUG(DEBUG)) i_context (
      .clk(clk),
      .rst_n(rst_n),
      .next_flow_i({
        debug_flow_i,
        packet_fetch_flow_q,
        departed_fetch_q,
        visit_fetch_q,
        packet_flow_q,
        command_fetch_valid_q ? command_fetch_flow_q : turn_fetch_flow
      }),
      .flow_i({flow_ack, flow_dep, flow_per, flow_inc, flow_gen}),
      .add_i(is_add),
      .remove_i(is_remove),
      .we_gen_i(active_gen),
      .we_ack_i({valid_ack && !(is_set && same_gen_ack), is_set}),
      .we_rtx_i({valid_ack && !(is_set && same_gen_ack), is_set || (is_repeat && !(valid_ack && same_gen_ack))}),
      .we_set_i({valid_per && !(is_set && same_gen_per), valid_inc && !(is_set && same_gen_inc), is_set}),
      .we_mark_i({own_ack, own_per, own_inc, active_gen}),
      .we_hold_i({valid_dep && !(writes_hold && same_gen_dep), writes_hold}),
      .window_i({merged_window_ack, window_dep, merged_window_per, merged_window_inc, next_window_gen}),
      .duty_i({merged_duty_ack, next_duty_dep, merged_duty_per, merged_duty_inc, next_duty_gen}),
      .whole_i({
        own_ack,
        valid_dep && !(active_gen && same_gen_dep) && !(valid_inc && same_inc_dep) && !(valid_per && same_per_dep) &&
            !(valid_ack && same_dep_ack),
        own_per,
        own_inc,
        active_gen
      }),
      .state_i({
        states[4*U+:U], states[3*U+:U], state_per, state_inc, next_state_gen
      }),
      .window_o(windows),
      .duty_o(duties),
      .state_o(states)
  );

  // ---------------------------------------------------------------- active set
  logic       settle, wanted_gen, wanted_inc, wanted_per, wanted_dep;
  logic [3:0] activate;
  logic [3:0] has_turn;
  assign wanted_gen = is_live_gen && !is_remove && !merged_duty_gen.idle && !merged_duty_gen.back_pressured;
  // Flows on which Segment Generation does not work: their merges need not wait for what it sends.
  assign wanted_inc = own_inc && wants_inc;
  // What the first stage of Incoming makes possible begins with the answer to its packet.
  assign wanted_per = own_per && (!has_ack[2] || has_dep[2]) && wants_per;
  assign wanted_dep = valid_dep && !(active_gen && same_gen_dep) && !(valid_inc && same_inc_dep) &&
      !(valid_per && same_per_dep) &&
      ((valid_ack && same_dep_ack) ? wants_ack : (!duty_dep.idle && !next_duty_dep.back_pressured));
  assign settle = turn_valid && !turn_extra;
  assign activate[0] = wanted_gen &&
      (has_inc[0] || (has_per[0] && !has_ack[0]) || has_dep[0] || command_valid_q);
  assign activate[3:1] = {wanted_dep, wanted_per, wanted_inc};

  flow_turns #(.FLOWS(FLOWS)) i_active (
      .clk(clk),
      .rst_n(rst_n),
      .settle_i(settle),
      .wanted_i(wanted_gen),
      .activate_i(activate),
      .flow_i({flow_dep, flow_per, flow_inc, flow_gen}),
      .advance_i(1'b1),
      .free_i(!command_valid_i),
      .has_turn_o(has_turn),
      .fetch_flow_o(turn_fetch_flow),
      .valid_o(turn_valid),
      .is_extra_o(turn_extra),
      .flow_o(turn_flow)
  );

  // ---------------------------------------------------------------- outputs
  // Which marks are fresh is known late, so they are counted a cycle later: the register in front of the wires to
  // credit is here for visits.
  logic              visited_q, visited_rate_q, visited_expired_q;
  logic [F-1:0]      visited_flow_q;
  logic [22:0]       visited_new_rate_q;
  logic [K-1:0]      visited_fresh_q;
  logic [SIZE_W-1:0] fresh_count;
  always_ff @(posedge clk) begin
    visited_q <= rst_n && valid_per;
    visited_flow_q <= flow_per;
    visited_rate_q <= HAS_RATE && (answer_per.rate != duty_per.rate);
    visited_new_rate_q <= answer_per.rate;
    visited_expired_q <= HAS_TOKENS && expired_per;
    visited_fresh_q <= fresh_per;
  end
  popcount #(.W(K)) i_fresh (.map_i(visited_fresh_q), .count_o(fresh_count));

  always_comb begin
    forward_valid_o = command_valid_q || generated;
    forward_flow_o = flow_gen;
    forward_o.is_command = command_valid_q;
    forward_o.kind = command_q.kind;
    forward_o.bytes = command_q.bytes;
    forward_o.entry.segment = segment.id;
    forward_o.entry.times_sent = segment.times_sent;
    forward_o.entry.is_short = segment.is_short;

    incoming_flow_o = flow_inc;
    incoming_o.has_rate = HAS_RATE && (answer_inc.rate != duty_inc.rate);
    incoming_o.rate = answer_inc.rate;
    incoming_o.has_grant = HAS_TOKENS && has_grant_inc;
    incoming_o.grant = grant_inc;
    incoming_o.extra = '0;
    incoming_valid_o = valid_inc && (incoming_o.has_rate || incoming_o.has_grant);

    periodic_flow_o = visited_flow_q;
    periodic_o.has_rate = visited_rate_q;
    periodic_o.rate = visited_new_rate_q;
    periodic_o.has_grant = 1'b0;
    periodic_o.grant = 24'd0;
    periodic_o.extra = visited_expired_q ? fresh_count : '0;
    periodic_valid_o = visited_q && (periodic_o.has_rate || periodic_o.extra != '0);

    stats_o = {
      is_dropped,
      valid_per && expired_per,
      packet_valid_q && !window_ack.in_use,
      is_known && !is_acknowledged,
      is_known,
      is_repeat,
      generated
    };
  end

  // ---------------------------------------------------------------- stages
  always_ff @(posedge clk) begin
    if (!rst_n) begin
      command_fetch_valid_q <= 1'b0;
      command_valid_q <= 1'b0;
      packet_fetch_valid_q <= 1'b0;
      packet_valid_q <= 1'b0;
      second_valid_q <= 1'b0;
      departed_valid_q <= 3'b000;
      visit_next_q <= F'(1);
      visit_fetch_q <= '0;
      visit_flow_q <= '1;
      visit_fetch_retry_q <= 1'b0;
      visit_retry_q <= 1'b0;
    end else begin
      command_fetch_valid_q <= command_valid_i;
      command_valid_q <= command_fetch_valid_q;
      packet_fetch_valid_q <= packet_valid_i;
      packet_valid_q <= packet_fetch_valid_q;
      second_valid_q <= valid_ack;
      departed_valid_q <= {departed_valid_q[1:0], departed_valid_i};
      // The round: a visit that is dropped is repeated once, in the next slot.
      visit_flow_q <= visit_fetch_q;
      visit_retry_q <= visit_fetch_retry_q;
      visit_fetch_retry_q <= is_dropped && !visit_retry_q;
      if (is_dropped && !visit_retry_q) begin
        visit_fetch_q <= visit_flow_q;
      end else begin
        visit_fetch_q <= visit_next_q;
        visit_next_q <= visit_next_q + F'(1);
      end
    end
    command_fetch_flow_q <= command_flow_i;
    command_fetch_q <= command_i;
    command_flow_q <= command_fetch_flow_q;
    command_q <= command_fetch_q;
    packet_fetch_flow_q <= packet_flow_i;
    packet_fetch_q <= packet_i;
    packet_flow_q <= packet_fetch_flow_q;
    packet_q <= packet_fetch_q;
    second_flow_q <= packet_flow_q;
    second_packet_q <= packet_q;
    second_start_q <= acknowledged.start;
    second_old_start_q <= acknowledged.old_start;
    second_newly_q <= acknowledged.newly;
    second_sack_new_q <= acknowledged.sack_new;
    departed_wire_q <= departed_flow_i;
    departed_fetch_q <= departed_wire_q;
    departed_flow_q <= departed_fetch_q;
  end

  generate
    if (DEBUG != 0) begin : g_debug
      logic own_dep;
      assign own_dep = valid_dep && !(active_gen && same_gen_dep) && !(valid_inc && same_inc_dep) &&
          !(valid_per && same_per_dep);
      assign debug_events_o = {
        valid_vis && valid_run && same_run_vis,
        valid_vis && valid_ack && same_ack_vis,
        valid_vis && valid_inc && same_inc_vis && duty_vis.timer_on && !seen_duty_vis.timer_on,
        valid_vis && valid_inc && same_inc_vis,
        valid_run && valid_inc && same_inc_run,
        {valid_dep && same_dep_ack, 4'b0001} & {5{own_ack}},
        {1'b1, 3'b000, valid_ack && same_dep_ack} & {5{own_dep}},
        {valid_dep && same_per_dep, 3'b010, valid_ack && same_per_ack} & {5{own_per}},
        {valid_dep && same_inc_dep, 3'b001, valid_ack && same_inc_ack} & {5{own_inc}},
        {
          valid_dep && same_gen_dep,
          generated,
          valid_per && same_gen_per,
          valid_inc && same_gen_inc,
          valid_ack && same_gen_ack
        } & {5{active_gen}}
      };
    end else begin : g_no_debug
      assign debug_events_o = 30'd0;
    end
  endgenerate

`ifndef SYNTHESIS
  // Invariants of the flow that is visited, and of departures.
  logic [K-1:0] sent_map;
  logic [23:0]  sent_now;
  assign sent_now = window_vis.next - window_vis.start;
  range_mask #(.W(K)) i_sent (
      .from_i(window_vis.start[tonic_pkg::K_W-1:0]), .count_i(sent_now[SIZE_W-1:0]), .mask_o(sent_map)
  );
  always_ff @(posedge clk) begin
    if (rst_n && valid_dep) begin
      // Otherwise an address has left that was not generated.
      assert (duty_dep.outstanding != '0);
    end
    if (rst_n && valid_vis) begin
      // Otherwise more than K segments are outstanding.
      assert (sent_now <= 24'(K));
      // Otherwise a window of more than K segments.
      assert (window_vis.size <= SIZE_W'(K));
      // Otherwise acked outside of the window.
      assert ((window_vis.acked & ~sent_map) == '0);
      // Otherwise marked outside of the window.
      assert ((duty_vis.marked & ~sent_map) == '0);
      // Otherwise a segment is marked and acked.
      assert ((duty_vis.marked & window_vis.acked) == '0);
      // Otherwise retransmissions outside of the window.
      assert (((window_vis.repeats_low | window_vis.repeats_high) & ~sent_map) == '0);
      // Otherwise too many addresses wait.
      assert (duty_vis.outstanding <= COUNT_W'(tonic_pkg::STOP));
    end
    if (rst_n && valid_per) begin
      // Otherwise the program was called for a packet and a visit of one flow in one cycle.
      assert (!(valid_inc && flow_inc == flow_per));
      // Otherwise a packet was in the first stage when its flow was visited.
      assert (!(valid_run && flow_run == flow_per));
      // Otherwise two visits of a flow follow each other.
      assert (!(valid_vis && flow_vis == flow_per));
    end
    // Otherwise a turn and a command in one slot.
    if (rst_n) assert (!(command_valid_q && turn_valid));
    // Otherwise idle is wrong.
    if (rst_n && turn_valid && window_gen.in_use && !duty_gen.idle) assert (found);
  end
`endif
endmodule
