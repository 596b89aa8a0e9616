// One connection's sender and receiver: IRN's four modules around their contexts, an event a cycle (SIGCOMM'18, section
// 6.2.1). `rnic rtl trace` shows the packets of a simulated connection in it.
//
// In a cycle, one of `start_i`, `free_i`, `ack_i`, `timeout_i` and `data_i` may be high: the first packet of both sides
// is set; the link is free for a packet of the sender; the sender receives an acknowledgement; its timer has expired;
// the receiver receives a packet. Timers are outside. Nothing is reset: `start_i` comes first.
//
// Latency: the answer is in the same cycle, the next context in the next one; initiation interval 1.
module irn_connection #(
    parameter int unsigned W = 128
) (
    input  logic                     clk,
    // Time of the event, for waves only.
    input  logic [63:0]              now_ps_i,
    input  logic                     start_i,
    input  logic [irn_pkg::ID_W-1:0] first_psn_i,
    // Sender: as `irn_tx_free`, `irn_receive_ack` and `irn_timeout`.
    input  logic                     free_i,
    input  logic                     has_new_i,
    input  logic [$clog2(W):0]       cap_i,
    input  logic                     ack_i,
    input  logic                     is_nack_i,
    input  logic [irn_pkg::ID_W-1:0] cumulative_i,
    input  logic                     has_selective_i,
    input  logic [irn_pkg::ID_W-1:0] selective_i,
    input  logic                     timeout_i,
    input  logic [$clog2(W):0]       low_packets_i,
    // Receiver: as `irn_receive_data`.
    input  logic                     data_i,
    input  logic [irn_pkg::ID_W-1:0] psn_i,
    input  logic [1:0]               arrival_i,
    // The packet that is sent, the change of the timer, and whether a timeout starts the recovery.
    output logic                     send_o,
    output logic [irn_pkg::ID_W-1:0] psn_o,
    output logic                     is_again_o,
    output logic [1:0]               timer_o,
    output logic                     acts_o,
    // Sender's context after the event: the oldest packet that is not acknowledged, and the next new one.
    output logic [irn_pkg::ID_W-1:0] una_o,
    output logic [irn_pkg::ID_W-1:0] next_o,
    // Answer to data, and the next packet in order after it.
    output logic [1:0]               answer_o,
    output logic [irn_pkg::ID_W-1:0] expected_o,
    output logic [irn_pkg::ID_W-1:0] selective_o,
    output logic [irn_pkg::ID_W-1:0] msn_o,
    output logic [$clog2(W):0]       completions_o,
    output logic                     place_o
);
  localparam int unsigned B = $clog2(W);
  localparam int unsigned ID_W = irn_pkg::ID_W;

  typedef struct packed {
    logic [ID_W-1:0] una;
    logic [ID_W-1:0] next;
    logic [B:0]      again;
    logic [B:0]      lost;
    logic [B:0]      presumed;
    logic [ID_W-1:0] recovery;
    // `irn_pkg::flags_t`
    logic [3:0]      flags;
    logic [W-1:0]    sacked;
  } sender_t;

  typedef struct packed {
    logic [ID_W-1:0] expected;
    logic [ID_W-1:0] msn;
    logic [W-1:0]    high;
    logic [W-1:0]    low;
  } receiver_t;

  sender_t   sender_q, sender_d, after_ack, after_timeout, after_send;
  receiver_t receiver_q, receiver_d, after_data;
  logic [1:0] timer_of_send, timer_of_ack, timer_of_timeout;
  logic [ID_W-1:0] next_after_send;
  logic [B:0] again_after_send;
  logic       sends, acts;

  always_comb begin
    after_send = sender_q;
    after_send.next = next_after_send;
    after_send.again = again_after_send;
    sender_d = sender_q;
    timer_o = irn_pkg::KEEP;
    if (start_i) begin
      sender_d = '0;
      sender_d.una = first_psn_i;
      sender_d.next = first_psn_i;
    end else if (free_i) begin
      sender_d = after_send;
      timer_o = timer_of_send;
    end else if (ack_i) begin
      sender_d = after_ack;
      timer_o = timer_of_ack;
    end else if (timeout_i) begin
      sender_d = after_timeout;
      timer_o = timer_of_timeout;
    end
  end

  always_comb begin
    receiver_d = receiver_q;
    if (start_i) begin
      receiver_d = '0;
      receiver_d.expected = first_psn_i;
    end else if (data_i) begin
      receiver_d = after_data;
    end
  end

  always_ff @(posedge clk) begin
    sender_q <= sender_d;
    receiver_q <= receiver_d;
  end

  assign send_o = free_i && sends;
  assign acts_o = timeout_i && acts;
  assign una_o = sender_d.una;
  assign next_o = sender_d.next;
  assign expected_o = after_data.expected;
  assign msn_o = after_data.msn;

  irn_tx_free #(.W(W)) i_tx_free (
      .clk(clk),
      .allowed_i(free_i),
      .has_new_i(has_new_i),
      .cap_i(cap_i),
      .una_i(sender_q.una),
      .next_i(sender_q.next),
      .again_i(sender_q.again),
      .lost_i(sender_q.lost),
      .flags_i(sender_q.flags),
      .sacked_i(sender_q.sacked),
      .next_o(next_after_send),
      .again_o(again_after_send),
      .send_o(sends),
      .psn_o(psn_o),
      .is_again_o(is_again_o),
      .timer_o(timer_of_send)
  );

  logic [B:0] unused_acknowledged;
  logic       unused_is_new_selective;

  irn_receive_ack #(.W(W)) i_receive_ack (
      .clk(clk),
      .is_nack_i(is_nack_i),
      .cumulative_i(cumulative_i),
      .has_selective_i(has_selective_i),
      .selective_i(selective_i),
      .una_i(sender_q.una),
      .next_i(sender_q.next),
      .again_i(sender_q.again),
      .lost_i(sender_q.lost),
      .presumed_i(sender_q.presumed),
      .recovery_i(sender_q.recovery),
      .flags_i(sender_q.flags),
      .sacked_i(sender_q.sacked),
      .una_o(after_ack.una),
      .again_o(after_ack.again),
      .lost_o(after_ack.lost),
      .presumed_o(after_ack.presumed),
      .recovery_o(after_ack.recovery),
      .flags_o(after_ack.flags),
      .sacked_o(after_ack.sacked),
      .acknowledged_o(unused_acknowledged),
      .is_new_selective_o(unused_is_new_selective),
      .timer_o(timer_of_ack)
  );
  assign after_ack.next = sender_q.next;

  irn_timeout #(.W(W)) i_timeout (
      .low_packets_i(low_packets_i),
      .una_i(sender_q.una),
      .next_i(sender_q.next),
      .again_i(sender_q.again),
      .lost_i(sender_q.lost),
      .presumed_i(sender_q.presumed),
      .recovery_i(sender_q.recovery),
      .flags_i(sender_q.flags),
      .again_o(after_timeout.again),
      .lost_o(after_timeout.lost),
      .presumed_o(after_timeout.presumed),
      .recovery_o(after_timeout.recovery),
      .flags_o(after_timeout.flags),
      .acts_o(acts),
      .timer_o(timer_of_timeout)
  );
  assign after_timeout.una = sender_q.una;
  assign after_timeout.next = sender_q.next;
  assign after_timeout.sacked = sender_q.sacked;

  irn_receive_data #(.W(W)) i_receive_data (
      .clk(clk),
      .psn_i(psn_i),
      .arrival_i(arrival_i),
      .expected_i(receiver_q.expected),
      .msn_i(receiver_q.msn),
      .high_i(receiver_q.high),
      .low_i(receiver_q.low),
      .expected_o(after_data.expected),
      .msn_o(after_data.msn),
      .high_o(after_data.high),
      .low_o(after_data.low),
      .answer_o(answer_o),
      .selective_o(selective_o),
      .completions_o(completions_o),
      .place_o(place_o)
  );
endmodule
