// Limits the outputs of a program to the ranges of the NIC.
//
// The model is `Answer::new` of crates/rnic-tonic/src/program.rs: a window of at most K segments, a rate only in the
// scheme that has one, a timer of less than half the range of ticks. Combinational.
module dd_answer (
    input  logic               mark_i,
    input  logic [23:0]        first_i,
    input  logic [23:0]        last_i,
    input  logic [8:0]         window_i,
    input  logic [22:0]        rate_i,
    input  logic               restart_i,
    input  logic [23:0]        timer_i,
    output tonic_pkg::answer_t answer_o
);
  localparam int unsigned SIZE_W = tonic_pkg::SIZE_W;
  localparam logic HAS_RATE = tonic_user_pkg::SCHEME == tonic_pkg::SCHEME_RATE;

  always_comb begin
    answer_o.mark = mark_i;
    answer_o.first = first_i;
    answer_o.last = last_i;
    answer_o.size = (window_i > 9'(tonic_pkg::K)) ? SIZE_W'(tonic_pkg::K) : SIZE_W'(window_i);
    answer_o.rate = HAS_RATE ? rate_i : 23'd0;
    answer_o.restart = restart_i;
    answer_o.timer = timer_i[23] ? 24'h7FFFFF : timer_i;
  end
endmodule
