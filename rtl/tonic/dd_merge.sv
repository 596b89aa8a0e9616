// Merges the events of a flow in a cycle into its next state.
//
// Source: Tonic, section 3.4; the table of rules is in crates/rnic-tonic/src/dd/merge.rs. Combinational. Each module of
// data delivery has one for its flow, and all that work on a flow in a cycle get the same results; which of them writes
// a field is decided in `dd_engine`.
//
//   ack_i          the first stage of Incoming has processed a packet
//   answer_i       the program's settings apply: for a packet, or for a visit that is not dropped
//   marks_i        the segments that these answers mark
//   restart_i      an answer restarts the timer, or a visit has found that it has expired
//   generated_i    Segment Generation sends `segment_i`
//   transmitted_i  an address has left the credit engine
//   limit_i        the driver announces segments
//   fresh_o        segments that `marks_i` marks and that were not marked
module dd_merge (
    input  tonic_pkg::window_t            window_i,
    input  tonic_pkg::duty_t              duty_i,
    input  logic                          ack_i,
    input  logic [23:0]                   ack_start_i,
    input  logic [tonic_pkg::K-1:0]       ack_acked_i,
    input  logic [tonic_pkg::K-1:0]       ack_passed_i,
    input  logic                          answer_i,
    input  logic [tonic_pkg::SIZE_W-1:0]  size_i,
    input  logic [22:0]                   rate_i,
    input  logic [23:0]                   timer_i,
    input  logic [tonic_pkg::K-1:0]       marks_i,
    input  logic                          restart_i,
    input  logic                          generated_i,
    input  tonic_pkg::generated_t         segment_i,
    input  logic                          transmitted_i,
    input  logic                          limit_i,
    input  logic [23:0]                   limit_id_i,
    input  logic                          limit_short_i,
    input  logic [23:0]                   now_i,
    output tonic_pkg::window_t            window_o,
    output tonic_pkg::duty_t              duty_o,
    output logic [tonic_pkg::K-1:0]       fresh_o
);
  localparam int unsigned K = tonic_pkg::K;
  localparam int unsigned K_W = tonic_pkg::K_W;
  localparam int unsigned COUNT_W = tonic_pkg::COUNT_W;

  logic [23:0]        start, next, limit, sent, timer;
  logic [K-1:0]       acked, outstanding, in_window, may_be_marked, repeated, kept_marks, marked;
  logic [K-1:0]       repeats_low, repeats_high;
  logic               is_repeat, is_announced, is_stopped, is_idle;
  logic [COUNT_W-1:0] waiting;

  assign start = ack_i ? ack_start_i : window_i.start;
  assign acked = ack_i ? ack_acked_i : window_i.acked;
  assign is_repeat = generated_i && segment_i.is_repeat;
  assign next = (generated_i && !segment_i.is_repeat) ? (segment_i.id + 24'd1) : window_i.next;
  assign limit = limit_i ? limit_id_i : window_i.limit;
  assign sent = next - start;

  range_mask #(.W(K)) i_sent (.from_i(start[K_W-1:0]), .count_i(sent[K_W:0]), .mask_o(outstanding));
  assign may_be_marked = outstanding & ~acked;

  always_comb begin
    repeated = '0;
    if (is_repeat) repeated[segment_i.id[K_W-1:0]] = 1'b1;
  end
  assign kept_marks = duty_i.marked & ~repeated;
  assign marked = (kept_marks | marks_i) & may_be_marked;
  assign fresh_o = marks_i & may_be_marked & ~kept_marks;

  assign repeats_low = (window_i.repeats_low & ~repeated) | (segment_i.times_sent[0] ? repeated : '0);
  assign repeats_high = (window_i.repeats_high & ~repeated) | (segment_i.times_sent[1] ? repeated : '0);

  // Whether there is a segment to send: a marked one, or a new one.
  range_mask #(.W(K)) i_window (.from_i(start[K_W-1:0]), .count_i(window_o.size), .mask_o(in_window));
  serial_after #(.W(24)) i_announced (.a_i(limit), .b_i(next), .after_o(is_announced));
  assign is_idle = ((marked & in_window) == '0) && !(is_announced && (sent < 24'(window_o.size)));

  assign waiting = duty_i.outstanding + COUNT_W'(generated_i) - COUNT_W'(transmitted_i);
  assign timer = answer_i ? timer_i : duty_i.timer;
  assign is_stopped = (sent == 24'd0) || (timer == 24'd0);

  always_comb begin
    window_o.in_use = window_i.in_use;
    window_o.start = start;
    window_o.size = answer_i ? size_i : window_i.size;
    window_o.next = next;
    window_o.limit = limit;
    window_o.has_short_last = limit_i ? limit_short_i : window_i.has_short_last;
    window_o.acked = acked;
    window_o.repeats_low = ack_i ? (repeats_low & ~ack_passed_i) : repeats_low;
    window_o.repeats_high = ack_i ? (repeats_high & ~ack_passed_i) : repeats_high;
  end

  always_comb begin
    duty_o.marked = marked;
    duty_o.outstanding = waiting;
    duty_o.back_pressured = duty_i.back_pressured;
    if (waiting >= COUNT_W'(tonic_pkg::STOP)) duty_o.back_pressured = 1'b1;
    else if (waiting < COUNT_W'(tonic_pkg::START)) duty_o.back_pressured = 1'b0;
    duty_o.idle = is_idle;
    duty_o.total_sent = duty_i.total_sent + 24'(generated_i);
    duty_o.timer = timer;
    duty_o.rate = answer_i ? rate_i : duty_i.rate;
    duty_o.timer_on = duty_i.timer_on;
    duty_o.expiry = duty_i.expiry;
    if (restart_i || (generated_i && !duty_i.timer_on)) begin
      duty_o.timer_on = 1'b1;
      duty_o.expiry = now_i + timer;
    end
    // A stopped timer has one representation.
    if (is_stopped) begin
      duty_o.timer_on = 1'b0;
      duty_o.expiry = 24'd0;
    end
  end
endmodule
