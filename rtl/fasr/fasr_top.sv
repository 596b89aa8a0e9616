// FaSR's transport layer: its seven modules around the contexts of 1,024 queue pairs.
//
// Source: FaSR (2025) sections IV-B and IV-C; mechanisms R-17 to R-19. With GBN, go-back-N takes the place of the SR
// module, with the same contexts.
//
// SR takes an event in each cycle: expired timers first, then data packets and acknowledgements in turn. A data packet
// waits while ACKQueue may be full, other events while RetxQueue has no space for the longest retransmission.
// Time advances every TICK cycles.
module fasr_top #(
    parameter int unsigned GBN = 0,
    parameter int unsigned TICK = 16
) (
    input  logic                clk,
    input  logic                rst_n,
    input  logic [23:0]         rto_i,
    input  logic [23:0]         rto_extension_i,
    input  logic                command_valid_i,
    input  fasr_pkg::command_t  command_i,
    output logic                command_ready_o,
    input  logic                data_valid_i,
    input  fasr_pkg::received_t data_i,
    output logic                data_ready_o,
    input  logic                ack_valid_i,
    input  fasr_pkg::received_t ack_i,
    output logic                ack_ready_o,
    input  logic                wqe_valid_i,
    input  fasr_pkg::wqe_t      wqe_i,
    output logic                wqe_ready_o,
    input  logic                rdreq_valid_i,
    input  fasr_pkg::qp_t       rdreq_qp_i,
    input  fasr_pkg::psn_t      rdreq_psn_i,
    output logic                rdreq_ready_o,
    input  logic [3:0]          hold_i,
    output logic                send_valid_o,
    output fasr_pkg::send_t     send_o,
    // Events as SR has processed them.
    output logic                done_o,
    output fasr_pkg::event_t    done_event_o,
    output fasr_pkg::psn_t      done_next_o,
    output fasr_pkg::timer_t    done_timer_o,
    output logic [23:0]         now_o,
    output logic [7:0]          blocks_free_o,
    output logic [fasr_pkg::UNITS-1:0] units_taken_o
);
  logic [23:0] now_q;
  logic [7:0]  tick_q;
  always_ff @(posedge clk) begin
    if (!rst_n) begin
      now_q <= '0;
      tick_q <= '0;
    end else if (tick_q == 8'(TICK - 1)) begin
      tick_q <= '0;
      now_q <= now_q + 24'd1;
    end else begin
      tick_q <= tick_q + 8'd1;
    end
  end
  assign now_o = now_q;

  // QPC MANAGER.
  logic started, init, data_event_valid, data_event_ready, ack_event_valid, ack_event_ready;
  fasr_pkg::qp_t init_at;
  fasr_pkg::psn_t init_rcv_nxt, init_una;
  fasr_pkg::event_t data_event, ack_event;
  fasr_manager i_manager (
      .clk(clk), .rst_n(rst_n), .command_valid_i(command_valid_i), .command_i(command_i),
      .command_ready_o(command_ready_o), .data_valid_i(data_valid_i), .data_i(data_i), .data_ready_o(data_ready_o),
      .ack_valid_i(ack_valid_i), .ack_i(ack_i), .ack_ready_o(ack_ready_o), .started_o(started), .init_o(init),
      .init_at_o(init_at),
      .init_rcv_nxt_o(init_rcv_nxt), .init_una_o(init_una), .data_event_valid_o(data_event_valid),
      .data_event_o(data_event), .data_event_ready_i(data_event_ready), .ack_event_valid_o(ack_event_valid),
      .ack_event_o(ack_event), .ack_event_ready_i(ack_event_ready)
  );

  // RTO.
  fasr_pkg::qp_t rto_at;
  fasr_pkg::psn_t rto_una, rto_next;
  fasr_pkg::timer_t rto_timer;
  logic rto_valid, rto_ready;
  fasr_pkg::event_t rto_event;
  fasr_rto i_rto (
      .clk(clk), .rst_n(rst_n), .run_i(started), .now_i(now_q), .at_o(rto_at), .una_i(rto_una), .next_i(rto_next),
      .timer_i(rto_timer), .valid_o(rto_valid), .event_o(rto_event), .ready_i(rto_ready)
  );

  // The next event of SR.
  logic [4:0] ack_space;
  logic [7:0] retx_space;
  logic sr_ready, event_valid, data_may, others_may, takes_rto, takes_data, takes_ack, data_turn_q;
  fasr_pkg::event_t sr_event;
  assign data_may = ack_space > 5'd2;
  assign others_may = retx_space > 8'd75;
  assign takes_rto = rto_valid && others_may;
  assign takes_data = !takes_rto && data_event_valid && data_may
      && (data_turn_q || !(ack_event_valid && others_may));
  assign takes_ack = !takes_rto && !takes_data && ack_event_valid && others_may;
  assign event_valid = takes_rto || takes_data || takes_ack;
  assign sr_event = takes_rto ? rto_event : (takes_data ? data_event : ack_event);
  assign rto_ready = sr_ready && takes_rto;
  assign data_event_ready = sr_ready && takes_data;
  assign ack_event_ready = sr_ready && takes_ack;
  always_ff @(posedge clk) begin
    if (!rst_n) data_turn_q <= 1'b0;
    else if (sr_ready && event_valid && !takes_rto) data_turn_q <= takes_ack;
  end

  // SR.
  logic sr_go, sr_write, sr_write_timer, say_valid, retx_valid;
  fasr_pkg::sr_t sr_read, sr_value;
  fasr_pkg::psn_t sr_next;
  fasr_pkg::timer_t sr_timer, sr_timer_value;
  fasr_pkg::qp_t sr_at;
  fasr_pkg::ack_t say;
  fasr_pkg::retx_t retx;
  /* verilator lint_off PINCONNECTEMPTY */
  generate
    if (GBN != 0) begin : g_gbn
      fasr_gbn i_sr (
          .clk(clk), .rst_n(rst_n), .go_i(sr_go), .ev_valid_i(event_valid), .ev_i(sr_event), .ev_ready_o(sr_ready),
          .sr_i(sr_read), .next_i(sr_next), .timer_i(sr_timer), .now_i(now_q), .rto_i(rto_i),
          .rto_extension_i(rto_extension_i), .ack_valid_o(say_valid), .ack_o(say), .retx_valid_o(retx_valid),
          .retx_o(retx), .write_o(sr_write), .sr_o(sr_value), .write_timer_o(sr_write_timer),
          .timer_o(sr_timer_value), .write_qp_o(sr_at), .done_o(done_o), .done_event_o(done_event_o),
          .done_next_o(done_next_o), .done_timer_o(done_timer_o), .cycles_o(), .lane_o(),
          .blocks_free_o(blocks_free_o), .units_taken_o(units_taken_o)
      );
    end else begin : g_fasr
      fasr_sr i_sr (
          .clk(clk), .rst_n(rst_n), .go_i(sr_go), .ev_valid_i(event_valid), .ev_i(sr_event), .ev_ready_o(sr_ready),
          .sr_i(sr_read), .next_i(sr_next), .timer_i(sr_timer), .now_i(now_q), .rto_i(rto_i),
          .rto_extension_i(rto_extension_i), .ack_valid_o(say_valid), .ack_o(say), .retx_valid_o(retx_valid),
          .retx_o(retx), .write_o(sr_write), .sr_o(sr_value), .write_timer_o(sr_write_timer),
          .timer_o(sr_timer_value), .write_qp_o(sr_at), .done_o(done_o), .done_event_o(done_event_o),
          .done_next_o(done_next_o), .done_timer_o(done_timer_o), .cycles_o(), .lane_o(),
          .blocks_free_o(blocks_free_o), .units_taken_o(units_taken_o)
      );
    end
  endgenerate
  /* verilator lint_on PINCONNECTEMPTY */

  // CC.
  logic cc_go, cc_valid, cc_ready, cc_write_next, cc_write_timer;
  fasr_pkg::qp_t cc_read_at, cc_at;
  fasr_pkg::psn_t cc_una, cc_next, cc_psn, cc_next_value;
  fasr_pkg::timer_t cc_timer_value;
  fasr_cc i_cc (
      .clk(clk), .rst_n(rst_n), .go_i(cc_go), .now_i(now_q), .rto_i(rto_i), .wqe_valid_i(wqe_valid_i), .wqe_i(wqe_i),
      .wqe_ready_o(wqe_ready_o), .at_o(cc_read_at), .una_i(cc_una), .next_i(cc_next), .valid_o(cc_valid),
      .qp_o(cc_at), .psn_o(cc_psn), .ready_i(cc_ready), .write_next_o(cc_write_next),
      .write_next_value_o(cc_next_value), .write_timer_o(cc_write_timer), .timer_o(cc_timer_value)
  );

  // Send Queue.
  fasr_send i_send (
      .clk(clk), .rst_n(rst_n), .hold_i(hold_i), .ack_valid_i(say_valid), .ack_i(say), .ack_space_o(ack_space),
      .rdreq_valid_i(rdreq_valid_i), .rdreq_qp_i(rdreq_qp_i), .rdreq_psn_i(rdreq_psn_i),
      .rdreq_ready_o(rdreq_ready_o), .retx_valid_i(retx_valid), .retx_i(retx), .retx_space_o(retx_space),
      .new_valid_i(cc_valid), .new_qp_i(cc_at), .new_psn_i(cc_psn), .new_ready_o(cc_ready), .valid_o(send_valid_o),
      .send_o(send_o)
  );

  // Update Queue and QPC RAM.
  logic write_sr, write_next, write_timer;
  fasr_pkg::qp_t write_sr_at, write_next_at, write_timer_at;
  fasr_pkg::sr_t write_sr_value;
  fasr_pkg::psn_t write_next_value;
  fasr_pkg::timer_t write_timer_value;
  fasr_update i_update (
      .init_i(init), .init_at_i(init_at), .init_rcv_nxt_i(init_rcv_nxt), .init_una_i(init_una), .cc_go_o(cc_go),
      .cc_next_i(cc_write_next), .cc_timer_i(cc_write_timer), .cc_at_i(cc_at), .cc_next_psn_i(cc_next_value),
      .cc_timer_value_i(cc_timer_value), .sr_go_o(sr_go), .sr_i(sr_write), .sr_timer_i(sr_write_timer),
      .sr_at_i(sr_at), .sr_value_i(sr_value), .sr_timer_value_i(sr_timer_value), .write_sr_o(write_sr),
      .write_sr_at_o(write_sr_at), .write_sr_value_o(write_sr_value), .write_next_o(write_next),
      .write_next_at_o(write_next_at), .write_next_value_o(write_next_value), .write_timer_o(write_timer),
      .write_timer_at_o(write_timer_at), .write_timer_value_o(write_timer_value)
  );
  fasr_qpc i_qpc (
      .clk(clk), .write_sr_i(write_sr), .write_sr_at_i(write_sr_at), .sr_i(write_sr_value), .write_next_i(write_next),
      .write_next_at_i(write_next_at), .next_i(write_next_value), .write_timer_i(write_timer),
      .write_timer_at_i(write_timer_at), .timer_i(write_timer_value), .sr_at_i(sr_event.qp), .sr_sr_o(sr_read),
      .sr_next_o(sr_next), .sr_timer_o(sr_timer), .cc_at_i(cc_read_at), .cc_una_o(cc_una), .cc_next_o(cc_next),
      .rto_at_i(rto_at), .rto_una_o(rto_una), .rto_next_o(rto_next), .rto_timer_o(rto_timer)
  );
endmodule
