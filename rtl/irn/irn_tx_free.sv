// IRN's txFree: the link is free for a packet of the queue pair (SIGCOMM'18, section 6.2.1; mechanisms I-22, I-25).
//
// In recovery, the look-ahead searches the bitmap of selective acknowledgements from the packet after the last one sent
// again, up to the end of what is lost, and returns the first packet that is not in it. If there is none, or outside of
// recovery, a new packet is sent, if there is one and the cap permits it. One packet a call, the lowest first.
//
// The paper's "next packet to retransmit" is three distances from `una` here, of 8 bits each at W = 128: where the
// look-ahead continues, where what is lost ends, and where what was sent before a timeout ends. A window of W packets
// needs no more. The recovery sequence advances when packets are found lost, in `irn_receive_ack` and `irn_timeout`:
// they are sent before any new packet, so that it has the value that the last new packet gives it here.
//
// Latency: none, or two cycles if PIPE is 1; initiation interval 1.
module irn_tx_free #(
    parameter int unsigned W = 128,
    parameter int unsigned PIPE = 0
) (
    input  logic                     clk,
    // A packet may be sent, a new one is there, and at most so many may be in flight (at most W).
    input  logic                     allowed_i,
    input  logic                     has_new_i,
    input  logic [$clog2(W):0]       cap_i,
    // Context: the oldest packet that is not acknowledged, the next new one, the distances, and the bitmap.
    input  logic [irn_pkg::ID_W-1:0] una_i,
    input  logic [irn_pkg::ID_W-1:0] next_i,
    input  logic [$clog2(W):0]       again_i,
    input  logic [$clog2(W):0]       lost_i,
    input  irn_pkg::flags_t          flags_i,
    input  logic [W-1:0]             sacked_i,
    // Context after the call; the rest of it does not change.
    output logic [irn_pkg::ID_W-1:0] next_o,
    output logic [$clog2(W):0]       again_o,
    // The packet to send, if there is one, and whether it is sent again.
    output logic                     send_o,
    output logic [irn_pkg::ID_W-1:0] psn_o,
    output logic                     is_again_o,
    // The timer starts: no packet was in flight.
    output logic [1:0]               timer_o
);
  localparam int unsigned B = $clog2(W);

  typedef struct packed {
    logic                     allowed;
    logic                     may_send_new;
    logic                     is_empty;
    logic                     is_recovering;
    logic [irn_pkg::ID_W-1:0] una;
    logic [irn_pkg::ID_W-1:0] next;
    logic [B:0]               again;
    logic [W-1:0]             sacked;
    logic [B-1:0]             head;
    logic [B:0]               lost;
  } start_t;

  typedef struct packed {
    logic                     allowed;
    logic                     may_send_new;
    logic                     is_empty;
    logic                     is_recovering;
    logic [irn_pkg::ID_W-1:0] una;
    logic [irn_pkg::ID_W-1:0] next;
    logic [B:0]               again;
    logic [B:0]               lost;
    // Number of packets after `again` that are acknowledged selectively.
    logic [B-1:0]             skipped;
  } search_t;

  start_t  start, start_q;
  search_t search, search_q;

  // Stage 1: where the look-ahead begins and ends.

  logic [irn_pkg::ID_W-1:0] in_flight;
  logic [B-1:0]             highest;
  logic [B:0]               to_highest;
  logic                     has_sacked;

  assign in_flight = next_i - una_i;

  last_in_ring #(.W(W)) i_highest (
      .map_i(sacked_i),
      .head_i(una_i[B-1:0]),
      .found_o(has_sacked),
      .position_o(highest)
  );

  // After a timeout at least the packet at `una` is lost.
  assign to_highest = has_sacked ? {1'b0, highest - una_i[B-1:0]} : {{B{1'b0}}, 1'b1};

  always_comb begin
    start.allowed = allowed_i;
    start.may_send_new = has_new_i && (in_flight < {{irn_pkg::ID_W - B - 1{1'b0}}, cap_i});
    start.is_empty = (in_flight == '0);
    start.is_recovering = flags_i.recovering;
    start.una = una_i;
    start.next = next_i;
    start.again = again_i;
    start.sacked = sacked_i;
    start.head = una_i[B-1:0] + again_i[B-1:0];
    start.lost = flags_i.timed_out ? to_highest : lost_i;
  end

  cut #(.W($bits(start)), .IS_REGISTER(PIPE)) i_cut_start (.clk(clk), .value_i(start), .value_o(start_q));

  // Stage 2: the first packet from there on that is not acknowledged. There is one: that at `una` is not.

  logic [B-1:0] position;
  logic         has_zero;

  first_in_ring #(.W(W)) i_search (
      .map_i(~start_q.sacked),
      .head_i(start_q.head),
      .found_o(has_zero),
      .position_o(position)
  );

  always_comb begin
    search.allowed = start_q.allowed;
    search.may_send_new = start_q.may_send_new;
    search.is_empty = start_q.is_empty;
    search.is_recovering = start_q.is_recovering && has_zero;
    search.una = start_q.una;
    search.next = start_q.next;
    search.again = start_q.again;
    search.lost = start_q.lost;
    search.skipped = position - start_q.head;
  end

  cut #(.W($bits(search)), .IS_REGISTER(PIPE)) i_cut_search (.clk(clk), .value_i(search), .value_o(search_q));

  // Stage 3: the packet.

  logic [B+1:0] distance;
  logic         is_lost;

  assign distance = {1'b0, search_q.again} + {2'b00, search_q.skipped};
  assign is_lost = search_q.is_recovering && (distance < {1'b0, search_q.lost});

  always_comb begin
    send_o = search_q.allowed && (is_lost || search_q.may_send_new);
    is_again_o = search_q.allowed && is_lost;
    next_o = search_q.next;
    again_o = search_q.again;
    psn_o = '0;
    timer_o = irn_pkg::KEEP;
    if (is_again_o) begin
      psn_o = search_q.una + {{irn_pkg::ID_W - B - 2{1'b0}}, distance};
      again_o = distance[B:0] + {{B{1'b0}}, 1'b1};
    end else if (send_o) begin
      psn_o = search_q.next;
      next_o = search_q.next + {{irn_pkg::ID_W - 1{1'b0}}, 1'b1};
      if (search_q.is_empty) timer_o = irn_pkg::RESTART;
    end
  end
endmodule
