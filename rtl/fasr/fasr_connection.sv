// One connection's sender and receiver: FaSR's SR module at each end, with the context of a single queue pair. `rnic rtl
// trace` shows the packets of a simulated connection in it.
//
// In a cycle, one of these may be high, while neither end is busy: `start_i` sets the first packet of both ends; with
// `send_i` the sender sends `send_psn_i`, and `again_i` says that it is a retransmission; with `ack_i` it receives an
// acknowledgement, or its timer has expired (`kind_i` is a `fasr_pkg::event_kind_t`); with `data_i` the receiver
// receives a packet. Timers are outside.
//
// An end is busy until the event is processed; outputs then have its results, until the next event.
module fasr_connection (
    input  logic             clk,
    input  logic             rst_n,
    // Time of the event, for waves only.
    input  logic [63:0]      now_ps_i,
    input  logic             start_i,
    input  fasr_pkg::psn_t   first_psn_i,
    // Sender.
    input  logic             send_i,
    input  fasr_pkg::psn_t   send_psn_i,
    input  logic             again_i,
    input  logic             ack_i,
    input  fasr_pkg::event_kind_t kind_i,
    input  fasr_pkg::psn_t   cumulative_i,
    input  fasr_pkg::psn_t   selective_i,
    input  fasr_pkg::lost_t  lost_i,
    // Receiver.
    input  logic             data_i,
    input  fasr_pkg::psn_t   psn_i,
    // Sender: oldest packet that is not acknowledged, next new one, and packets that the last event asks to retransmit.
    output logic             busy_o,
    output fasr_pkg::psn_t   una_o,
    output fasr_pkg::psn_t   next_o,
    output logic             recovering_o,
    output logic [9:0]       requested_o,
    // Receiver: next packet in order, and answer to the last packet.
    output fasr_pkg::psn_t   expected_o,
    output fasr_pkg::say_t   answer_o,
    output fasr_pkg::lost_t  missing_o,
    output logic             placed_o,
    // Blocks of bitmaps in use at each end.
    output logic [6:0]       sender_blocks_o,
    output logic [6:0]       receiver_blocks_o
);
  fasr_pkg::sr_t sender_q, receiver_q, started, sender, receiver;
  fasr_pkg::psn_t next_q;
  fasr_pkg::event_t ack, data;
  fasr_pkg::timer_t expired;

  assign expired = {1'b1, 1'b1, 24'd0};
  assign ack = {10'd0, kind_i, cumulative_i, selective_i, lost_i};
  assign data = {10'd0, fasr_pkg::EV_DATA, psn_i, 24'd0, 4'd0};
  always_comb begin
    started = '0;
    started.rcv_nxt = first_psn_i;
    started.una = first_psn_i;
  end

  logic sender_ready, sender_writes, retransmits, receiver_ready, receiver_writes, answers;
  logic [7:0] sender_free, receiver_free;
  fasr_pkg::retx_t retransmission;
  fasr_pkg::ack_t answer;
  /* verilator lint_off PINCONNECTEMPTY */
  fasr_sr i_sender (
      .clk(clk), .rst_n(rst_n), .go_i(1'b1), .ev_valid_i(ack_i), .ev_i(ack), .ev_ready_o(sender_ready),
      .sr_i(sender_q), .next_i(next_q), .timer_i(expired), .now_i(24'd0), .rto_i(24'd0), .rto_extension_i(24'd0),
      .ack_valid_o(), .ack_o(), .retx_valid_o(retransmits), .retx_o(retransmission), .write_o(sender_writes),
      .sr_o(sender), .write_timer_o(), .timer_o(), .write_qp_o(), .done_o(), .done_event_o(), .done_next_o(),
      .done_timer_o(), .cycles_o(), .lane_o(), .blocks_free_o(sender_free), .units_taken_o()
  );
  fasr_sr i_receiver (
      .clk(clk), .rst_n(rst_n), .go_i(1'b1), .ev_valid_i(data_i), .ev_i(data), .ev_ready_o(receiver_ready),
      .sr_i(receiver_q), .next_i(first_psn_i), .timer_i(expired), .now_i(24'd0), .rto_i(24'd0),
      .rto_extension_i(24'd0), .ack_valid_o(answers), .ack_o(answer), .retx_valid_o(), .retx_o(),
      .write_o(receiver_writes), .sr_o(receiver), .write_timer_o(), .timer_o(), .write_qp_o(), .done_o(),
      .done_event_o(), .done_next_o(), .done_timer_o(), .cycles_o(), .lane_o(), .blocks_free_o(receiver_free),
      .units_taken_o()
  );
  /* verilator lint_on PINCONNECTEMPTY */

  logic [4:0] bits;
  logic [9:0] requested_q;
  fasr_pkg::say_t answer_q;
  fasr_pkg::lost_t missing_q;
  logic placed_q;
  popcount #(.W(10)) i_bits (.map_i(retransmission.arg), .count_o(bits));

  always_ff @(posedge clk) begin
    if (start_i) begin
      sender_q <= started;
      next_q <= first_psn_i;
    end else begin
      if (sender_writes) sender_q <= sender;
      if (send_i && !again_i) next_q <= send_psn_i + 24'd1;
    end
    if (start_i || ack_i) requested_q <= '0;
    else if (retransmits) requested_q <= requested_q + (retransmission.is_map ? 10'(bits) : retransmission.arg);

    if (start_i) receiver_q <= started;
    else if (receiver_writes) receiver_q <= receiver;
    if (start_i || data_i) begin
      answer_q <= fasr_pkg::SAY_NONE;
      missing_q <= '0;
      placed_q <= 1'b0;
    end else if (answers) begin
      answer_q <= answer.kind;
      missing_q <= answer.lost;
      placed_q <= answer.placed;
    end
  end

  assign busy_o = !sender_ready || !receiver_ready;
  assign una_o = sender_q.una;
  assign next_o = next_q;
  assign recovering_o = sender_q.recovering;
  assign requested_o = requested_q;
  assign expected_o = receiver_q.rcv_nxt;
  assign answer_o = answer_q;
  assign missing_o = missing_q;
  assign placed_o = placed_q;
  assign sender_blocks_o = 7'(fasr_pkg::BLOCKS) - sender_free[6:0];
  assign receiver_blocks_o = 7'(fasr_pkg::BLOCKS) - receiver_free[6:0];
endmodule
