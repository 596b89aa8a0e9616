// Second stage of Incoming: the program decides about a packet.
//
// Source: Tonic, section 3.2.3; the model is `run_incoming` of crates/rnic-tonic/src/dd.rs. Combinational: the state of
// the flow, and what the first stage has found, in; the program's outputs and next state, out.
module dd_incoming1 (
    input  logic [tonic_user_pkg::CONFIG_W-1:0] config_i,
    input  logic [23:0]                         now_i,
    input  tonic_pkg::packet_t                  packet_i,
    input  logic [23:0]                         start_i,
    input  logic [23:0]                         old_start_i,
    input  logic [8:0]                          newly_i,
    input  logic                                sack_new_i,
    input  tonic_pkg::window_t                  window_i,
    input  tonic_pkg::duty_t                    duty_i,
    input  logic [tonic_user_pkg::STATE_W-1:0]  state_i,
    output logic [tonic_user_pkg::STATE_W-1:0]  state_o,
    output tonic_pkg::answer_t                  answer_o
);
  localparam int unsigned K = tonic_pkg::K;
  localparam int unsigned K_W = tonic_pkg::K_W;

  logic [K-1:0] acked, marked;
  logic [8:0]   size;
  logic [22:0]  rate;
  logic [23:0]  timer;
  logic         mark, restart;
  logic [23:0]  first, last;

  ring_view #(.W(K)) i_acked (.map_i(window_i.acked), .head_i(window_i.start[K_W-1:0]), .view_o(acked));
  ring_view #(.W(K)) i_marked (.map_i(duty_i.marked), .head_i(window_i.start[K_W-1:0]), .view_o(marked));

  tonic_user_incoming i_program (
      .in_ack(packet_i.ack),
      .in_nack(packet_i.nack),
      .in_trimmed(packet_i.trimmed),
      .in_cnp(packet_i.cnp),
      .in_sacked(packet_i.sacked),
      .in_sack_new(sack_new_i),
      .in_cum(packet_i.cum),
      .in_sack(packet_i.sack),
      .in_start(start_i),
      .in_old_start(old_start_i),
      .in_next(window_i.next),
      .in_total_sent(duty_i.total_sent),
      .in_now(now_i),
      .in_newly(newly_i),
      .in_times_sent(packet_i.times_sent),
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
