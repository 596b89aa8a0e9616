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
//   new_i          Segment Generation sends the next new segment, whose place in the ring is `new_map_i`
//   repeat_i       Segment Generation sends a marked segment, for the time `times_sent_i`; its place is
//                  `repeat_place_i`, and `repeat_map_i`, which is zero otherwise
//   transmitted_i  an address has left the credit engine
//   limit_i        the driver announces segments
//   wants_o        the flow has a segment to send and may, if Segment Generation does not work on it
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
    input  logic                          new_i,
    input  logic [tonic_pkg::K-1:0]       new_map_i,
    input  logic                          repeat_i,
    input  logic [tonic_pkg::K_W-1:0]     repeat_place_i,
    input  logic [tonic_pkg::K-1:0]       repeat_map_i,
    input  logic [1:0]                    times_sent_i,
    input  logic                          transmitted_i,
    input  logic                          limit_i,
    input  logic [23:0]                   limit_id_i,
    input  logic                          limit_short_i,
    input  logic [23:0]                   now_i,
    output tonic_pkg::window_t            window_o,
    output tonic_pkg::duty_t              duty_o,
    output logic                          wants_o,
    output logic [tonic_pkg::K-1:0]       fresh_o
);
  localparam int unsigned K = tonic_pkg::K;
  localparam int unsigned K_W = tonic_pkg::K_W;
  localparam int unsigned COUNT_W = tonic_pkg::COUNT_W;

  logic [23:0]        start, after_next, limit, sent_before, sent, timer;
  logic [K-1:0]       acked, outstanding, in_window, may_be_marked, kept_marks, sent_marks, new_marks;
  logic [K-1:0]       repeats_low, repeats_high;
  logic               is_generated, is_stopped, has_sent, has_kept, has_two_kept, is_marked, is_new_marked;
  logic               is_held;
  logic [K-1:0]       in_kept;
  logic [COUNT_W-1:0] staying;
  logic [1:0]         is_announced, is_within;
  logic [COUNT_W-1:0] waiting;

  assign start = ack_i ? ack_start_i : window_i.start;
  assign acked = ack_i ? ack_acked_i : window_i.acked;
  assign limit = limit_i ? limit_id_i : window_i.limit;
  assign is_generated = new_i || repeat_i;

  // Which segment is sent is known late. So all else is computed for both cases, with and without a new segment.
  assign after_next = window_i.next + 24'd1;
  assign sent_before = window_i.next - window_i.start;
  assign sent = window_i.next - start;

  // Marks of what was outstanding and still is; beside them, the mark of a new segment.
  range_mask #(.W(K)) i_sent (
      .from_i(window_i.start[K_W-1:0]), .count_i(sent_before[K_W:0]), .mask_o(outstanding)
  );
  assign may_be_marked = outstanding & ~acked & (ack_i ? ~ack_passed_i : '1);
  assign kept_marks = duty_i.marked & may_be_marked & ~repeat_map_i;
  assign sent_marks = marks_i & may_be_marked;
  assign new_marks = new_i ? (marks_i & new_map_i) : '0;
  assign fresh_o = (sent_marks & ~(duty_i.marked & ~repeat_map_i)) | new_marks;

  assign repeats_low = (window_i.repeats_low & ~repeat_map_i) | (times_sent_i[0] ? repeat_map_i : '0);
  assign repeats_high = (window_i.repeats_high & ~repeat_map_i) | (times_sent_i[1] ? repeat_map_i : '0);

  // Whether there is a segment to send: a marked one, or a new one.
  range_mask #(.W(K)) i_window (.from_i(start[K_W-1:0]), .count_i(window_o.size), .mask_o(in_window));
  assign in_kept = duty_i.marked & may_be_marked & in_window;
  some_set #(.W(K)) i_kept (.map_i(in_kept), .any_o(has_kept), .two_o(has_two_kept));
  assign has_sent = |(sent_marks & in_window);
  // One mark less, if a marked segment is sent.
  assign is_marked = has_sent || has_two_kept || (has_kept && !(repeat_i && in_kept[repeat_place_i]));
  assign is_new_marked = |(marks_i & new_map_i & in_window);
  serial_after #(.W(24)) i_announced (.a_i(limit), .b_i(window_i.next), .after_o(is_announced[0]));
  serial_after #(.W(24)) i_announced_after (.a_i(limit), .b_i(after_next), .after_o(is_announced[1]));
  assign is_within[0] = sent < 24'(window_o.size);
  assign is_within[1] = sent + 24'd1 < 24'(window_o.size);

  assign waiting = duty_i.outstanding + COUNT_W'(is_generated) - COUNT_W'(transmitted_i);
  assign staying = duty_i.outstanding - COUNT_W'(transmitted_i);
  assign is_held = (staying >= COUNT_W'(tonic_pkg::STOP)) ||
      (duty_i.back_pressured && !(staying < COUNT_W'(tonic_pkg::START)));
  assign wants_o = (has_sent || has_kept || (is_announced[0] && is_within[0])) && !is_held;
  assign timer = answer_i ? timer_i : duty_i.timer;
  assign is_stopped = (sent == 24'd0 && !new_i) || (timer == 24'd0);

  always_comb begin
    window_o.in_use = window_i.in_use;
    window_o.start = start;
    window_o.size = answer_i ? size_i : window_i.size;
    window_o.next = new_i ? after_next : window_i.next;
    window_o.limit = limit;
    window_o.has_short_last = limit_i ? limit_short_i : window_i.has_short_last;
    window_o.acked = acked;
    window_o.repeats_low = ack_i ? (repeats_low & ~ack_passed_i) : repeats_low;
    window_o.repeats_high = ack_i ? (repeats_high & ~ack_passed_i) : repeats_high;
  end

  always_comb begin
    duty_o.marked = kept_marks | sent_marks | new_marks;
    duty_o.outstanding = waiting;
    duty_o.back_pressured = duty_i.back_pressured;
    if (waiting >= COUNT_W'(tonic_pkg::STOP)) duty_o.back_pressured = 1'b1;
    else if (waiting < COUNT_W'(tonic_pkg::START)) duty_o.back_pressured = 1'b0;
    duty_o.idle = !is_marked &&
        (new_i ? !(is_new_marked || (is_announced[1] && is_within[1])) : !(is_announced[0] && is_within[0]));
    duty_o.total_sent = is_generated ? (duty_i.total_sent + 24'd1) : duty_i.total_sent;
    duty_o.timer = timer;
    duty_o.rate = answer_i ? rate_i : duty_i.rate;
    duty_o.timer_on = duty_i.timer_on;
    duty_o.expiry = duty_i.expiry;
    if (restart_i || (is_generated && !duty_i.timer_on)) begin
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
