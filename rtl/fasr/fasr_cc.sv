// CC: decides which new packet is sent. Work requests wait in NewWQEQueue, and each sends up to eight packets a turn.
//
// Source: FaSR (2025) sections IV-B, V-D1; mechanisms R-17, R-22. Packets in flight are bounded by a cap (our choice:
// the paper's tests run without congestion control). The next request is read while the current one sends, so that a
// packet can leave in every cycle. A request with packets left after its turn returns to the end of the queue; requests
// of the host wait for such a return. The timer starts with the first packet in flight.
module fasr_cc #(
    parameter int unsigned BATCH = 8
) (
    input  logic             clk,
    input  logic             rst_n,
    input  logic             go_i,
    input  logic [23:0]      now_i,
    input  logic [23:0]      rto_i,
    input  logic             wqe_valid_i,
    input  fasr_pkg::wqe_t   wqe_i,
    output logic             wqe_ready_o,
    output fasr_pkg::qp_t    at_o,
    input  fasr_pkg::psn_t   una_i,
    input  fasr_pkg::psn_t   next_i,
    output logic             valid_o,       // a packet to send
    output fasr_pkg::qp_t    qp_o,
    output fasr_pkg::psn_t   psn_o,
    input  logic             ready_i,
    output logic             write_next_o,
    output fasr_pkg::psn_t   write_next_value_o,
    output logic             write_timer_o,
    output fasr_pkg::timer_t timer_o
);
  fasr_pkg::wqe_t head, next_q, current_q, returned;
  fasr_pkg::psn_t una_q, psn_q, next_una_q, next_psn_q, in_flight;
  logic           head_valid, pops, push, reads_q, next_valid_q, busy_q, is_empty_q, same_q;
  logic [3:0]     left_q;
  logic [6:0]     space;
  logic           sends, may_send, is_last, ends, moves, returns;

  // The request behind the current one: popped, and a cycle later its context is known.
  assign pops = head_valid && !reads_q && !next_valid_q;
  assign at_o = head.qp;

  assign in_flight = psn_q - una_q;
  assign may_send = busy_q && (in_flight < 24'(fasr_pkg::CAP));
  assign valid_o = may_send && go_i;
  assign qp_o = current_q.qp;
  assign psn_o = psn_q;
  assign sends = valid_o && ready_i;
  assign is_last = (current_q.packets == 16'd1) || (left_q == 4'd1);
  assign ends = go_i && ((sends && is_last) || (busy_q && !may_send));
  assign returned = {current_q.qp, sends ? current_q.packets - 16'd1 : current_q.packets};
  assign returns = ends && (returned.packets != '0);
  assign moves = next_valid_q && (!busy_q || ends);

  assign wqe_ready_o = !returns && (space > 7'd3);
  assign push = returns || (wqe_valid_i && wqe_ready_o);
  fasr_fifo #(.W(26), .DEPTH(64)) i_queue (
      .clk(clk), .rst_n(rst_n), .push_i(push), .data_i(returns ? returned : wqe_i), .space_o(space),
      .valid_o(head_valid), .head_o(head), .pop_i(pops)
  );

  assign write_next_o = sends;
  assign write_next_value_o = psn_q + 24'd1;
  assign write_timer_o = sends && is_empty_q;
  assign timer_o = {1'b1, 1'b0, now_i + rto_i};

  always_ff @(posedge clk) begin
    if (!rst_n) begin
      reads_q <= 1'b0;
      next_valid_q <= 1'b0;
      busy_q <= 1'b0;
    end else begin
      reads_q <= pops;
      if (reads_q) next_valid_q <= 1'b1;
      else if (moves) next_valid_q <= 1'b0;
      if (moves) busy_q <= 1'b1;
      else if (ends) busy_q <= 1'b0;
    end
    if (pops) begin
      next_q <= head;
      // The context is read while the current request writes it.
      same_q <= busy_q && (head.qp == current_q.qp);
    end
    if (reads_q) begin
      next_una_q <= una_i;
      next_psn_q <= next_i;
    end
    if (sends) begin
      psn_q <= psn_q + 24'd1;
      current_q.packets <= current_q.packets - 16'd1;
      left_q <= left_q - 4'd1;
      is_empty_q <= 1'b0;
    end
    if (moves) begin
      current_q <= next_q;
      una_q <= next_una_q;
      left_q <= 4'(BATCH);
      psn_q <= same_q ? (sends ? psn_q + 24'd1 : psn_q) : next_psn_q;
      is_empty_q <= same_q ? 1'b0 : (next_una_q == next_psn_q);
    end
  end
endmodule
