// RTO: visits the contexts of all queue pairs in turn, one a cycle, and reports timers that have expired.
//
// Source: FaSR (2025) section IV-B; mechanism R-17. With few packets in flight, or after an extension, an expired timer
// is a timeout; otherwise it is extended. A queue pair with packets in flight whose timer is off is reported too: its
// last acknowledgement and a new packet were processed at the same time. SR checks again, since the contexts may have
// changed meanwhile. A queue of two events; the visit waits while it is full.
module fasr_rto #(
    parameter int unsigned FEW = 3
) (
    input  logic             clk,
    input  logic             rst_n,
    input  logic             run_i,    // contexts are valid
    input  logic [23:0]      now_i,
    output fasr_pkg::qp_t    at_o,
    input  fasr_pkg::psn_t   una_i,
    input  fasr_pkg::psn_t   next_i,
    input  fasr_pkg::timer_t timer_i,
    output logic             valid_o,
    output fasr_pkg::event_t event_o,
    input  logic             ready_i
);
  fasr_pkg::qp_t    at_q, visited_q;
  logic             visits_q, has_room, reports, deadline_ahead, is_due;
  fasr_pkg::psn_t   in_flight;
  fasr_pkg::event_t found;
  logic [2:0]       space;

  serial_after i_due (.a_i(timer_i.deadline), .b_i(now_i), .after_o(deadline_ahead));
  assign is_due = timer_i.on && !deadline_ahead;
  assign in_flight = next_i - una_i;

  always_comb begin
    found = '0;
    found.qp = visited_q;
    if (!timer_i.on) found.kind = fasr_pkg::EV_ARM;
    else if (timer_i.extended || (in_flight < 24'(FEW))) found.kind = fasr_pkg::EV_TIMEOUT;
    else found.kind = fasr_pkg::EV_EXTEND;
  end
  assign reports = visits_q && (in_flight != '0) && (is_due || !timer_i.on);
  assign has_room = run_i && (space > 3'd1);
  assign at_o = at_q;

  fasr_fifo #(.W(66), .DEPTH(4)) i_queue (
      .clk(clk), .rst_n(rst_n), .push_i(reports), .data_i(found), .space_o(space), .valid_o(valid_o),
      .head_o(event_o), .pop_i(valid_o && ready_i)
  );

  always_ff @(posedge clk) begin
    if (!rst_n) begin
      at_q <= '0;
      visits_q <= 1'b0;
    end else begin
      visits_q <= has_room;
      if (has_room) at_q <= at_q + 1'b1;
    end
    visited_q <= at_q;
  end
endmodule
