// Send Queue: acknowledgements, Read requests, retransmissions and new packets, one packet a cycle.
//
// Source: FaSR (2025) sections IV-B and IV-C; mechanisms R-17, R-18. Each class has a queue of its own (new packets
// have theirs before congestion control), so that a class that is held, as when its DMA engine is busy, delays no
// other. Of those not held, the first in this order is sent. A range or bitmap of retransmissions is sent packet by
// packet.
module fasr_send (
    input  logic            clk,
    input  logic            rst_n,
    input  logic [3:0]      hold_i,           // by class
    input  logic            ack_valid_i,
    input  fasr_pkg::ack_t  ack_i,
    output logic [4:0]      ack_space_o,
    input  logic            rdreq_valid_i,
    input  fasr_pkg::qp_t   rdreq_qp_i,
    input  fasr_pkg::psn_t  rdreq_psn_i,
    output logic            rdreq_ready_o,
    input  logic            retx_valid_i,
    input  fasr_pkg::retx_t retx_i,
    output logic [7:0]      retx_space_o,
    input  logic            new_valid_i,
    input  fasr_pkg::qp_t   new_qp_i,
    input  fasr_pkg::psn_t  new_psn_i,
    output logic            new_ready_o,
    output logic            valid_o,
    output fasr_pkg::send_t send_o
);
  logic ack_valid, rdreq_valid, retx_valid, retx_head_valid, retx_pop;
  logic [3:0] takes;
  fasr_pkg::ack_t ack;
  logic [33:0] rdreq;
  logic [4:0] rdreq_space;
  fasr_pkg::retx_t retx_head;

  fasr_fifo #(.W(66), .DEPTH(16)) i_ack (
      .clk(clk), .rst_n(rst_n), .push_i(ack_valid_i), .data_i(ack_i), .space_o(ack_space_o), .valid_o(ack_valid),
      .head_o(ack), .pop_i(takes[0])
  );
  fasr_fifo #(.W(34), .DEPTH(16)) i_rdreq (
      .clk(clk), .rst_n(rst_n), .push_i(rdreq_valid_i && rdreq_ready_o), .data_i({rdreq_qp_i, rdreq_psn_i}),
      .space_o(rdreq_space), .valid_o(rdreq_valid), .head_o(rdreq), .pop_i(takes[1])
  );
  fasr_fifo #(.W(45), .DEPTH(128)) i_retx (
      .clk(clk), .rst_n(rst_n), .push_i(retx_valid_i), .data_i(retx_i), .space_o(retx_space_o),
      .valid_o(retx_head_valid), .head_o(retx_head), .pop_i(retx_pop)
  );
  assign rdreq_ready_o = rdreq_space != '0;

  // The range or bitmap that is being sent; neither is ever empty.
  fasr_pkg::retx_t retx_q;
  logic            retx_busy_q, retx_last;
  logic [3:0]      bit_at;
  logic [9:0]      rest;
  fasr_pkg::psn_t  retx_psn;
  /* verilator lint_off PINCONNECTEMPTY */
  first_set #(.W(10)) i_bit (.map_i(retx_q.arg), .found_o(), .position_o(bit_at));
  /* verilator lint_on PINCONNECTEMPTY */
  assign rest = retx_q.is_map ? (retx_q.arg & (retx_q.arg - 10'd1)) : retx_q.arg - 10'd1;
  assign retx_last = rest == '0;
  assign retx_psn = retx_q.is_map ? retx_q.psn + {20'd0, bit_at} : retx_q.psn;
  assign retx_valid = retx_busy_q;
  assign retx_pop = retx_head_valid && (!retx_busy_q || (takes[2] && retx_last));

  logic [3:0] offers;
  assign offers = {new_valid_i, retx_valid, rdreq_valid, ack_valid} & ~hold_i;
  assign takes = offers & (~offers + 4'd1);
  assign new_ready_o = takes[3];
  assign valid_o = offers != '0;
  always_comb begin
    send_o = '0;
    if (takes[0]) begin
      send_o = {fasr_pkg::SEND_ACK, ack};
    end else if (takes[1]) begin
      send_o.class_ = fasr_pkg::SEND_RDREQ;
      send_o.ack.qp = rdreq[33:24];
      send_o.ack.psn = rdreq[23:0];
    end else if (takes[2]) begin
      send_o.class_ = fasr_pkg::SEND_RETX;
      send_o.ack.qp = retx_q.qp;
      send_o.ack.psn = retx_psn;
    end else begin
      send_o.class_ = fasr_pkg::SEND_NEW;
      send_o.ack.qp = new_qp_i;
      send_o.ack.psn = new_psn_i;
    end
  end

  always_ff @(posedge clk) begin
    if (!rst_n) retx_busy_q <= 1'b0;
    else if (retx_pop) retx_busy_q <= 1'b1;
    else if (takes[2] && retx_last) retx_busy_q <= 1'b0;
    if (retx_pop) begin
      retx_q <= retx_head;
    end else if (takes[2]) begin
      retx_q.arg <= rest;
      if (!retx_q.is_map) retx_q.psn <= retx_q.psn + 24'd1;
    end
  end

`ifndef SYNTHESIS
  always_ff @(posedge clk) begin
    if (rst_n && retx_valid_i) assert (retx_i.arg != '0);
  end
`endif
endmodule
