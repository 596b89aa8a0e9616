// The words of `dd_context`'s stores as the state of a flow.
module dd_fields (
    input  logic                                                      in_use_i,
    input  logic [72:0]                                               gen_i,
    input  logic [23+tonic_pkg::K:0]                                  ack_i,
    input  logic [2*tonic_pkg::K-1:0]                                 rtx_i,
    input  logic [46+tonic_pkg::SIZE_W+tonic_user_pkg::STATE_W:0]     set_i,
    input  logic [25+tonic_pkg::K:0]                                  mark_i,
    input  logic [tonic_pkg::COUNT_W:0]                               hold_i,
    output tonic_pkg::window_t                                        window_o,
    output tonic_pkg::duty_t                                          duty_o,
    output logic [tonic_user_pkg::STATE_W-1:0]                        state_o
);
  assign window_o.in_use = in_use_i;
  assign {window_o.next, window_o.limit, window_o.has_short_last, duty_o.total_sent} = gen_i;
  assign {window_o.start, window_o.acked} = ack_i;
  assign {window_o.repeats_low, window_o.repeats_high} = rtx_i;
  assign {window_o.size, duty_o.timer, duty_o.rate, state_o} = set_i;
  assign {duty_o.marked, duty_o.idle, duty_o.timer_on, duty_o.expiry} = mark_i;
  assign {duty_o.outstanding, duty_o.back_pressured} = hold_i;
endmodule
