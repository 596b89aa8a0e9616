// Falcon's receive windows of a connection, for data and for requests, and the words of its acknowledgements.
//
// Source: Falcon (SIGCOMM'25) section 4.1, specification Rev 0.9 sections 7.7, 9.2.1. One operation a cycle on either
// window; the outputs for it are valid in the same cycle, the words of an acknowledgement show the operations before.
module falcon_rx_window (
    input  logic                   clk,
    input  logic                   rst_n,
    input  logic                   start_i,         // sets both bases and empties the windows
    input  logic [31:0]            data_base_i,
    input  logic [31:0]            request_base_i,
    input  logic                   valid_i,
    input  logic                   is_request_i,
    input  falcon_pkg::operation_t operation_i,
    input  logic [31:0]            psn_i,
    input  logic                   acknowledged_i,
    input  logic [7:0]             width_i,
    output falcon_pkg::position_t  position_o,
    // The words of an extended acknowledgement, and whether it is needed instead of the bases alone.
    output logic [31:0]            data_base_o,
    output logic [31:0]            request_base_o,
    output logic [127:0]           data_received_o,
    output logic [127:0]           data_acknowledged_o,
    output logic [63:0]            request_received_o,
    output logic                   data_dropped_o,
    output logic                   request_dropped_o,
    output logic                   extended_o
);
  falcon_pkg::window_t data_q, request_q, selected, changed;

  assign selected = is_request_i ? request_q : data_q;
  falcon_rx_step i_step (
      .operation_i(operation_i), .psn_i(psn_i), .acknowledged_i(acknowledged_i), .width_i(width_i),
      .window_i(selected), .window_o(changed), .position_o(position_o)
  );

  assign data_base_o = data_q.base;
  assign request_base_o = request_q.base;
  assign data_received_o = data_q.received;
  assign data_acknowledged_o = data_q.acknowledged;
  assign request_received_o = request_q.received[63:0];
  assign data_dropped_o = data_q.dropped;
  assign request_dropped_o = request_q.dropped;
  assign extended_o = data_q.dropped || request_q.dropped || (data_q.received != '0)
      || (request_q.received[63:0] != '0);

  always_ff @(posedge clk) begin
    if (!rst_n || start_i) begin
      data_q <= '0;
      data_q.base <= data_base_i;
      request_q <= '0;
      request_q.base <= request_base_i;
    end else if (valid_i) begin
      if (is_request_i) request_q <= changed;
      else data_q <= changed;
    end
  end

`ifndef SYNTHESIS
  always_ff @(posedge clk) begin
    if (rst_n) assert (!data_q.acknowledged[0] && !request_q.acknowledged[0]);
    if (rst_n) assert ((data_q.acknowledged & ~data_q.received) == '0);
  end
`endif
endmodule
