// QPC MANAGER: creates and destroys queue pairs, and checks received packets.
//
// Source: FaSR (2025) section IV-B; mechanism R-17. The index of a queue pair is the low part of its number; the rest
// is compared with a tag, so packets for a queue pair that does not exist are dropped. Data packets and
// acknowledgements have a path each: a packet is checked in the cycle after its arrival and then waits in a queue. A
// destroyed queue pair passes EV_RELEASE to SR, behind the acknowledgements. After reset the contexts of all queue
// pairs are written once, a cycle each.
module fasr_manager (
    input  logic                clk,
    input  logic                rst_n,
    input  logic                command_valid_i,
    input  fasr_pkg::command_t  command_i,
    output logic                command_ready_o,
    input  logic                data_valid_i,
    input  fasr_pkg::received_t data_i,
    output logic                data_ready_o,
    input  logic                ack_valid_i,
    input  fasr_pkg::received_t ack_i,
    output logic                ack_ready_o,
    // Initial contexts; `started_o` when all have been written after reset.
    output logic                started_o,
    output logic                init_o,
    output fasr_pkg::qp_t       init_at_o,
    output fasr_pkg::psn_t      init_rcv_nxt_o,
    output fasr_pkg::psn_t      init_una_o,
    // Checked packets.
    output logic                data_event_valid_o,
    output fasr_pkg::event_t    data_event_o,
    input  logic                data_event_ready_i,
    output logic                ack_event_valid_o,
    output fasr_pkg::event_t    ack_event_o,
    input  logic                ack_event_ready_i
);
  fasr_pkg::qp_t       sweep_q;
  logic                sweeps_q, accepts, write_tag, data_valid_q, ack_valid_q, release_q, data_fits, ack_fits;
  fasr_pkg::received_t data_q, ack_q;
  fasr_pkg::event_t    data_event, ack_event;
  logic [14:0]         data_tag, ack_tag, new_tag;
  logic [3:0]          data_space, ack_space;
  logic                takes_data, takes_ack, takes_command;

  assign data_fits = data_space > 4'd1;
  assign ack_fits = ack_space > 4'd2;
  assign accepts = !sweeps_q;
  assign started_o = !sweeps_q;
  assign data_ready_o = accepts && data_fits;
  assign ack_ready_o = accepts && ack_fits && !command_valid_i;
  assign command_ready_o = accepts && ack_fits;
  assign takes_data = data_valid_i && data_ready_o;
  assign takes_ack = ack_valid_i && ack_ready_o;
  assign takes_command = command_valid_i && command_ready_o;

  assign init_o = sweeps_q || (takes_command && command_i.creates);
  assign init_at_o = sweeps_q ? sweep_q : command_i.qp;
  assign init_rcv_nxt_o = sweeps_q ? '0 : command_i.rcv_nxt;
  assign init_una_o = sweeps_q ? '0 : command_i.una;
  assign write_tag = sweeps_q || takes_command;
  assign new_tag = sweeps_q ? '0 : {command_i.creates, command_i.tag};
  fasr_ram #(.W(15)) i_data_tags (
      .clk(clk), .write_i(write_tag), .write_at_i(init_at_o), .data_i(new_tag), .read_at_i(data_i.qpn[9:0]),
      .data_o(data_tag)
  );
  fasr_ram #(.W(15)) i_ack_tags (
      .clk(clk), .write_i(write_tag), .write_at_i(init_at_o), .data_i(new_tag), .read_at_i(ack_i.qpn[9:0]),
      .data_o(ack_tag)
  );

  logic data_is_legal, ack_is_legal;
  assign data_is_legal = data_valid_q && (data_tag == {1'b1, data_q.qpn[23:10]});
  assign ack_is_legal = ack_valid_q && (ack_tag == {1'b1, ack_q.qpn[23:10]});
  assign data_event = {data_q.qpn[9:0], fasr_pkg::EV_DATA, data_q.cumulative, data_q.psn, data_q.lost};
  always_comb begin
    ack_event = {ack_q.qpn[9:0], ack_q.kind, ack_q.cumulative, ack_q.psn, ack_q.lost};
    if (release_q) ack_event.kind = fasr_pkg::EV_RELEASE;
    // A packet from outside is an acknowledgement.
    else if ((ack_q.kind == fasr_pkg::EV_DATA) || (ack_q.kind > fasr_pkg::EV_NAK)) ack_event.kind = fasr_pkg::EV_ACK;
  end

  fasr_fifo #(.W(66), .DEPTH(8)) i_data (
      .clk(clk), .rst_n(rst_n), .push_i(data_is_legal), .data_i(data_event), .space_o(data_space),
      .valid_o(data_event_valid_o), .head_o(data_event_o), .pop_i(data_event_valid_o && data_event_ready_i)
  );
  fasr_fifo #(.W(66), .DEPTH(8)) i_ack (
      .clk(clk), .rst_n(rst_n), .push_i(ack_is_legal || release_q), .data_i(ack_event), .space_o(ack_space),
      .valid_o(ack_event_valid_o), .head_o(ack_event_o), .pop_i(ack_event_valid_o && ack_event_ready_i)
  );

  always_ff @(posedge clk) begin
    if (!rst_n) begin
      sweeps_q <= 1'b1;
      sweep_q <= '0;
      data_valid_q <= 1'b0;
      ack_valid_q <= 1'b0;
      release_q <= 1'b0;
    end else begin
      sweep_q <= sweep_q + 1'b1;
      if (&sweep_q) sweeps_q <= 1'b0;
      data_valid_q <= takes_data;
      ack_valid_q <= takes_ack;
      release_q <= takes_command && !command_i.creates;
    end
    data_q <= data_i;
    ack_q <= ack_i;
    if (takes_command) ack_q.qpn[9:0] <= command_i.qp;
  end
endmodule
