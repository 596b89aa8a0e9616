// IRN's receiveData: a data packet has arrived (SIGCOMM'18, sections 5.3.3 and 6.2.1; mechanisms I-22, I-23).
//
// The stored context never has the bit of the expected packet. Therefore the packets that would follow it in order, and
// what they complete, are found from the context alone, beside the arithmetic on the packet's id. A packet in order
// takes all of that, any other packet none.
//
// Packets: in order, the window moves past it and all that follow it, ACK. Early within the window and new, it is
// recorded, NACK with its id. Recorded before, or earlier than expected: ACK. Beyond the window: dropped, NACK without
// its id.
//
// Latency: none, or two cycles if PIPE is 1; initiation interval 1. The context outputs belong to the packet of the
// answer.
module irn_receive_data #(
    parameter int unsigned W = 128,
    parameter int unsigned PIPE = 0
) (
    input  logic            clk,
    // The packet: its id, and what it does (a code of `irn_pkg`).
    input  logic [irn_pkg::ID_W-1:0] psn_i,
    input  logic [1:0]      arrival_i,
    // Context: the next packet in order, the messages received, and the 2-bitmap as two maps, high and low bits.
    input  logic [irn_pkg::ID_W-1:0] expected_i,
    input  logic [irn_pkg::ID_W-1:0] msn_i,
    input  logic [W-1:0]    high_i,
    input  logic [W-1:0]    low_i,
    // Context after the packet.
    output logic [irn_pkg::ID_W-1:0] expected_o,
    output logic [irn_pkg::ID_W-1:0] msn_o,
    output logic [W-1:0]    high_o,
    output logic [W-1:0]    low_o,
    // Answer: cumulative and message sequence number are those of the context; the selective id is valid in a NACK.
    output logic [1:0]         answer_o,
    output logic [irn_pkg::ID_W-1:0] selective_o,
    // Receives that are complete now, at most W.
    output logic [$clog2(W):0] completions_o,
    // The payload is to be placed in memory.
    output logic            place_o
);
  localparam int unsigned B = $clog2(W);

  typedef struct packed {
    logic [irn_pkg::ID_W-1:0] psn;
    logic [1:0]               arrival;
    logic [irn_pkg::ID_W-1:0] expected;
    logic [irn_pkg::ID_W-1:0] msn;
    logic [W-1:0]             high;
    logic [W-1:0]             low;
    logic                     in_order;
    logic                     is_kept;
    logic                     is_outside;
    // Positions up to that of the expected packet.
    logic [W-1:0]             before_next;
    // Position of the first packet after the expected one that has not arrived, and whether it is before that of the
    // expected packet, or the same: the run wraps.
    logic [B-1:0]             stop;
    logic                     wraps;
  } search_t;

  typedef struct packed {
    logic [irn_pkg::ID_W-1:0] psn;
    logic [1:0]               arrival;
    logic [irn_pkg::ID_W-1:0] expected;
    logic [irn_pkg::ID_W-1:0] msn;
    logic [W-1:0]             high;
    logic [W-1:0]             low;
    logic                     in_order;
    logic                     is_kept;
    logic                     is_outside;
    logic [B-1:0]             stop;
    logic                     wraps;
    // Messages and receives that packets which follow the expected one without a gap complete.
    logic [B:0]               messages;
    logic [B:0]               receives;
  } count_t;

  search_t search, search_q;
  count_t  count, count_q;

  // Stage 1: the class of the packet, and the end of the run.

  logic [irn_pkg::ID_W-1:0] distance;
  logic [W-1:0]             is_absent, before_next;
  logic [B-1:0]             later, first;
  logic                     is_early, is_later, has_first;

  assign distance = psn_i - expected_i;
  assign is_absent = ~(high_i | low_i);

  serial_after #(.W(irn_pkg::ID_W)) i_early (.a_i(psn_i), .b_i(expected_i), .after_o(is_early));

  // The search of `first_in_ring` from the position after the expected packet's on, whose mask is used again. The
  // expected packet is absent, so the search ends there at the latest.
  below_mask #(.W(W)) i_before_next (
      .count_i({1'b0, expected_i[B-1:0]} + {{B{1'b0}}, 1'b1}),
      .mask_o (before_next)
  );
  first_set #(.W(W)) i_later (.map_i(is_absent & ~before_next), .found_o(is_later), .position_o(later));
  first_set #(.W(W)) i_first (.map_i(is_absent), .found_o(has_first), .position_o(first));

  always_comb begin
    search.psn = psn_i;
    search.arrival = arrival_i;
    search.expected = expected_i;
    search.msn = msn_i;
    search.high = high_i;
    search.low = low_i;
    search.in_order = (distance == '0);
    search.is_outside = is_early && (|distance[irn_pkg::ID_W-1:B]);
    search.is_kept = is_early && !(|distance[irn_pkg::ID_W-1:B]) && is_absent[psn_i[B-1:0]];
    search.before_next = before_next;
    search.stop = is_later ? later : first;
    search.wraps = !is_later && has_first;
  end

  cut #(.W($bits(search)), .IS_REGISTER(PIPE)) i_cut_search (.clk(clk), .value_i(search), .value_o(search_q));

  // Stage 2: what the run completes.

  logic [W-1:0] before_stop, passed;
  logic [B:0]   messages, receives;

  below_mask #(.W(W)) i_before_stop (.count_i({1'b0, search_q.stop}), .mask_o(before_stop));

  assign passed = search_q.wraps ? (~search_q.before_next | before_stop) : (~search_q.before_next & before_stop);

  popcount #(.W(W)) i_messages (.map_i(passed & search_q.high), .count_o(messages));
  popcount #(.W(W)) i_receives (.map_i(passed & search_q.high & search_q.low), .count_o(receives));

  always_comb begin
    count.psn = search_q.psn;
    count.arrival = search_q.arrival;
    count.expected = search_q.expected;
    count.msn = search_q.msn;
    count.high = search_q.in_order ? (search_q.high & ~passed) : search_q.high;
    count.low = search_q.in_order ? (search_q.low & ~passed) : search_q.low;
    count.in_order = search_q.in_order;
    count.is_kept = search_q.is_kept;
    count.is_outside = search_q.is_outside;
    count.stop = search_q.stop;
    count.wraps = search_q.wraps;
    count.messages = messages;
    count.receives = receives;
  end

  cut #(.W($bits(count)), .IS_REGISTER(PIPE)) i_cut_count (.clk(clk), .value_i(count), .value_o(count_q));

  // Stage 3: the next context and the answer.

  logic         ends, completes;
  logic [W-1:0] own;

  assign ends = count_q.arrival[1];
  assign completes = count_q.arrival == irn_pkg::COMPLETES_RECEIVE;

  one_hot #(.W(W)) i_own (.enable_i(count_q.is_kept), .position_i(count_q.psn[B-1:0]), .map_o(own));

  always_comb begin
    high_o = count_q.high | (count_q.arrival[1] ? own : '0);
    low_o = count_q.low | (count_q.arrival[0] ? own : '0);
    expected_o = count_q.expected;
    msn_o = count_q.msn;
    completions_o = '0;
    if (count_q.in_order) begin
      // The next id at the position where the run stops.
      expected_o[B-1:0] = count_q.stop;
      expected_o[irn_pkg::ID_W-1:B] =
          count_q.expected[irn_pkg::ID_W-1:B] + {{irn_pkg::ID_W - B - 1{1'b0}}, count_q.wraps};
      msn_o = count_q.msn + {{irn_pkg::ID_W - B - 1{1'b0}}, count_q.messages} + {{irn_pkg::ID_W - 1{1'b0}}, ends};
      completions_o = count_q.receives + {{B{1'b0}}, completes};
    end
    answer_o = irn_pkg::ACK;
    if (count_q.is_kept) answer_o = irn_pkg::NACK;
    if (count_q.is_outside) answer_o = irn_pkg::NACK_OUTSIDE;
    selective_o = count_q.is_kept ? count_q.psn : '0;
    place_o = count_q.in_order || count_q.is_kept;
  end
endmodule
