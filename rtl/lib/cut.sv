// A cut between two stages of a pipeline: a register, or a wire where the module is used as one combinational function.
//
// Latency: one cycle if IS_REGISTER is 1, else none.
module cut #(
    parameter int unsigned W = 1,
    parameter int unsigned IS_REGISTER = 0
) (
    input  logic         clk,
    input  logic [W-1:0] value_i,
    output logic [W-1:0] value_o
);
  generate
    if (IS_REGISTER != 0) begin : g_register
      logic [W-1:0] value_q;
      always_ff @(posedge clk) value_q <= value_i;
      assign value_o = value_q;
    end else begin : g_wire
      assign value_o = value_i;
    end
  endgenerate
endmodule
