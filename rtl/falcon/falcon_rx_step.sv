// One operation on a window of Falcon's receiver. Combinational.
//
// Source: Falcon (SIGCOMM'25) section 4.1, specification Rev 0.9 sections 9.2.1, 9.2.2.4. As bit 0 of `acknowledged` is
// clear in every stored window, the number of packets by which an acknowledgement of the base moves it follows from the
// stored map alone: the search for the first zero and the comparison of the packet's number are side by side.
module falcon_rx_step (
    input  falcon_pkg::operation_t operation_i,
    input  logic [31:0]            psn_i,
    input  logic                   acknowledged_i,  // with DO_ARRIVE: acknowledged at once
    input  logic [7:0]             width_i,         // packets of the window; those behind it are kept as well
    input  falcon_pkg::window_t    window_i,
    output falcon_pkg::window_t    window_o,
    output falcon_pkg::position_t  position_o
);
  logic [31:0]  offset;
  logic [127:0] bit_at;
  logic         is_before, is_outside, is_acknowledged, is_received, keeps, acknowledges, found;
  logic [6:0]   zero;
  logic [7:0]   count;
  logic [127:0] received, acknowledged;

  assign offset = psn_i - window_i.base;
  assign is_before = offset[31];
  assign is_outside = |offset[30:7];
  assign bit_at = 128'd1 << offset[6:0];
  assign is_acknowledged = |(window_i.acknowledged & bit_at);
  assign is_received = |(window_i.received & bit_at);

  always_comb begin
    if (is_before) position_o = falcon_pkg::AT_ACKNOWLEDGED;
    else if (is_outside) position_o = falcon_pkg::AT_OUTSIDE;
    else if (is_acknowledged) position_o = falcon_pkg::AT_ACKNOWLEDGED;
    else if (is_received) position_o = falcon_pkg::AT_RECEIVED;
    else if ({1'b0, offset[6:0]} < width_i) position_o = falcon_pkg::AT_NEW;
    else position_o = falcon_pkg::AT_BEYOND;
  end

  assign keeps = (operation_i == falcon_pkg::DO_ARRIVE)
      && ((position_o == falcon_pkg::AT_NEW) || (position_o == falcon_pkg::AT_BEYOND));
  assign acknowledges = (keeps && acknowledged_i)
      || ((operation_i == falcon_pkg::DO_ACKNOWLEDGE) && (position_o == falcon_pkg::AT_RECEIVED));

  // The base moves past itself and the acknowledged packets behind it.
  first_set #(.W(128)) i_zero (.map_i({1'b1, ~window_i.acknowledged[127:1]}), .found_o(found), .position_o(zero));
  assign count = {1'b0, zero} + 8'd1;
  assign received = window_i.received | (keeps ? bit_at : '0);
  assign acknowledged = window_i.acknowledged | (acknowledges ? bit_at : '0);

  always_comb begin
    window_o = window_i;
    window_o.received = received;
    window_o.acknowledged = acknowledged;
    if (acknowledges && (offset == '0)) begin
      window_o.base = window_i.base + {24'd0, count};
      window_o.received = received >> count;
      window_o.acknowledged = acknowledged >> count;
    end
    if (operation_i == falcon_pkg::DO_REPORT) window_o.dropped = 1'b0;
    else if (((operation_i == falcon_pkg::DO_ARRIVE) && (position_o == falcon_pkg::AT_OUTSIDE))
        || ((operation_i == falcon_pkg::DO_REFUSE)
            && ((position_o == falcon_pkg::AT_OUTSIDE) || (position_o == falcon_pkg::AT_BEYOND))))
      window_o.dropped = 1'b1;
  end
endmodule
