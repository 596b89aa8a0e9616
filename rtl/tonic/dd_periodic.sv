// Periodic Updates: the program's turn for a flow, with or without an expired timer.
//
// Source: Tonic, section 3.2.3; the model is `run_periodic` of crates/rnic-tonic/src/dd.rs. Combinational.
module dd_periodic (
    input  logic [tonic_user_pkg::CONFIG_W-1:0] config_i,
    input  logic [23:0]                         now_i,
    input  tonic_pkg::window_t                  window_i,
    input  tonic_pkg::duty_t                    duty_i,
    input  logic [tonic_user_pkg::STATE_W-1:0]  state_i,
    output logic                                expired_o,
    output logic [tonic_user_pkg::STATE_W-1:0]  state_o,
    output tonic_pkg::answer_t                  answer_o
);
  localparam int unsigned K = tonic_pkg::K;
  localparam int unsigned K_W = tonic_pkg::K_W;

  logic [K-1:0] acked, marked;
  logic [8:0]   size;
  logic [22:0]  rate;
  logic [23:0]  timer, late;
  logic         mark, restart;
  logic [23:0]  first, last;

  assign late = now_i - duty_i.expiry;
  assign expired_o = duty_i.timer_on && !late[23];

  ring_view #(.W(K)) i_acked (.map_i(window_i.acked), .head_i(window_i.start[K_W-1:0]), .view_o(acked));
  ring_view #(.W(K)) i_marked (.map_i(duty_i.marked), .head_i(window_i.start[K_W-1:0]), .view_o(marked));

  tonic_user_periodic i_program (
      .in_expired(expired_o),
      .in_start(window_i.start),
      .in_next(window_i.next),
      .in_total_sent(duty_i.total_sent),
      .in_now(now_i),
      .in_acked(acked),
      .in_marked(marked),
      .config_i(config_i),
      .state_i(state_i),
      .cur_window(9'(window_i.size)),
      .cur_rate(duty_i.rate),
      .cur_timer(duty_i.timer),
      .state_o(state_o),
      .act_mark(mark),
      .act_from(first),
      .act_to(last),
      .act_window(size),
      .act_rate(rate),
      .act_restart(restart),
      .act_timer(timer)
  );

  dd_answer i_answer (
      .mark_i(mark),
      .first_i(first),
      .last_i(last),
      .window_i(size),
      .rate_i(rate),
      .restart_i(restart),
      .timer_i(timer),
      .answer_o(answer_o)
  );
endmodule
