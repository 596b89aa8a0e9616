// Go-back-N with the ports of `fasr_sr`: what FaSR's circuits are compared with in size (R-R18).
//
// A receiver reports a gap once, and again when packets arrive that are not higher than the last one seen. A sender
// retransmits its window for a NAK, once until UNACK advances, and for a timeout. One event a cycle.
module fasr_gbn (
    input  logic             clk,
    input  logic             rst_n,
    input  logic             go_i,
    input  logic             ev_valid_i,
    input  fasr_pkg::event_t ev_i,
    output logic             ev_ready_o,
    input  fasr_pkg::sr_t    sr_i,
    input  fasr_pkg::psn_t   next_i,
    input  fasr_pkg::timer_t timer_i,
    input  logic [23:0]      now_i,
    input  logic [23:0]      rto_i,
    input  logic [23:0]      rto_extension_i,
    output logic             ack_valid_o,
    output fasr_pkg::ack_t   ack_o,
    output logic             retx_valid_o,
    output fasr_pkg::retx_t  retx_o,
    output logic             write_o,
    output fasr_pkg::sr_t    sr_o,
    output logic             write_timer_o,
    output fasr_pkg::timer_t timer_o,
    output fasr_pkg::qp_t    write_qp_o,
    output logic             done_o,
    output fasr_pkg::event_t done_event_o,
    output fasr_pkg::psn_t   done_next_o,
    output fasr_pkg::timer_t done_timer_o,
    output logic [6:0]       cycles_o,
    output fasr_pkg::lane_t  lane_o,
    output logic [7:0]       blocks_free_o,
    output logic [fasr_pkg::UNITS-1:0] units_taken_o
);
  logic             valid_q, first_q, forward_q, forward_timer_q;
  fasr_pkg::event_t event_q;
  fasr_pkg::sr_t    ctx_q, forwarded_q, ctx, sr_new;
  fasr_pkg::psn_t   next_q, next, una;
  fasr_pkg::timer_t timer_q, forwarded_timer_q, timer;

  assign ctx = first_q ? (forward_q ? forwarded_q : sr_i) : ctx_q;
  assign next = first_q ? next_i : next_q;
  assign timer = first_q ? (forward_timer_q ? forwarded_timer_q : timer_i) : timer_q;

  logic is_behind, after_gap_seen, is_stale, is_unsent, deadline_ahead, is_due, runs, goes_back, empty, acks;
  serial_after i_behind (.a_i(ctx.rcv_nxt), .b_i(event_q.cumulative), .after_o(is_behind));
  serial_after i_gap (.a_i(event_q.cumulative), .b_i(ctx.gap_at), .after_o(after_gap_seen));
  serial_after i_stale (.a_i(ctx.una), .b_i(event_q.cumulative), .after_o(is_stale));
  serial_after i_unsent (.a_i(event_q.cumulative), .b_i(next), .after_o(is_unsent));
  serial_after i_due (.a_i(timer.deadline), .b_i(now_i), .after_o(deadline_ahead));
  assign is_due = timer.on && !deadline_ahead;
  assign runs = valid_q && go_i;
  assign acks = (event_q.kind == fasr_pkg::EV_ACK) || (event_q.kind == fasr_pkg::EV_NAK);
  assign una = (acks && !is_stale && !is_unsent) ? event_q.cumulative : ctx.una;
  assign empty = una == next;

  always_comb begin
    sr_new = ctx;
    write_o = 1'b0;
    write_timer_o = 1'b0;
    timer_o = {1'b1, 1'b0, now_i + rto_i};
    ack_valid_o = 1'b0;
    ack_o = {event_q.qp, fasr_pkg::SAY_ACK, 1'b0, ctx.rcv_nxt, event_q.cumulative, 4'd0};
    goes_back = 1'b0;
    case (event_q.kind)
      fasr_pkg::EV_DATA: begin
        write_o = runs;
        ack_valid_o = runs;
        if (event_q.cumulative == ctx.rcv_nxt) begin
          sr_new.rcv_nxt = ctx.rcv_nxt + 24'd1;
          sr_new.gap_seen = 1'b0;
          ack_o.placed = 1'b1;
          ack_o.cumulative = ctx.rcv_nxt + 24'd1;
        end else if (!is_behind) begin
          ack_o.kind = fasr_pkg::SAY_NAK;
          ack_valid_o = runs && !(ctx.gap_seen && after_gap_seen);
          sr_new.gap_seen = 1'b1;
          sr_new.gap_at = event_q.cumulative;
        end
      end
      fasr_pkg::EV_ACK, fasr_pkg::EV_NAK:
      if (!is_stale && !is_unsent) begin
        write_o = runs;
        sr_new.una = una;
        if (una != ctx.una) begin
          sr_new.acted = 1'b0;
          write_timer_o = runs;
          if (empty) timer_o.on = 1'b0;
        end
        goes_back = (event_q.kind == fasr_pkg::EV_NAK) && !sr_new.acted && !empty;
        if (goes_back) sr_new.acted = 1'b1;
      end
      fasr_pkg::EV_TIMEOUT:
      if (is_due && !empty) begin
        write_o = runs;
        write_timer_o = runs;
        goes_back = 1'b1;
        sr_new.acted = 1'b1;
      end
      fasr_pkg::EV_EXTEND:
      if (is_due && !timer.extended) begin
        write_timer_o = runs;
        timer_o = {1'b1, 1'b1, now_i + rto_extension_i};
      end
      fasr_pkg::EV_ARM: write_timer_o = runs && !timer.on && !empty;
      default: ;
    endcase
  end

  assign retx_valid_o = runs && goes_back;
  assign retx_o = {event_q.qp, una, 1'b0, 10'(next - una)};
  assign ev_ready_o = !valid_q || go_i;
  assign done_o = runs;
  assign done_event_o = event_q;
  assign done_next_o = next;
  assign done_timer_o = timer;
  assign sr_o = sr_new;
  assign write_qp_o = event_q.qp;
  assign cycles_o = 7'd1;
  assign lane_o = '0;
  assign blocks_free_o = '0;
  assign units_taken_o = '0;

  always_ff @(posedge clk) begin
    if (!rst_n) begin
      valid_q <= 1'b0;
    end else if (ev_ready_o) begin
      valid_q <= ev_valid_i;
    end
    first_q <= ev_ready_o;
    if (ev_ready_o) begin
      event_q <= ev_i;
      forward_q <= write_o && (write_qp_o == ev_i.qp);
      forwarded_q <= sr_o;
      forward_timer_q <= write_timer_o && (write_qp_o == ev_i.qp);
      forwarded_timer_q <= timer_o;
    end else begin
      ctx_q <= ctx;
      next_q <= next;
      timer_q <= timer;
    end
  end
endmodule
