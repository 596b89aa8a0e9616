// Small memory in logic cells: one write port, and one read port without a register, which sees earlier writes only.
module ram_lut #(
    parameter int unsigned WIDTH = 10,
    parameter int unsigned DEPTH = 256
) (
    input  logic                     clk,
    input  logic                     we_i,
    input  logic [$clog2(DEPTH)-1:0] waddr_i,
    input  logic [WIDTH-1:0]         wdata_i,
    input  logic [$clog2(DEPTH)-1:0] raddr_i,
    output logic [WIDTH-1:0]         rdata_o
);
  logic [WIDTH-1:0] memory_q[DEPTH];

  always_ff @(posedge clk) if (we_i) memory_q[waddr_i] <= wdata_i;
  assign rdata_o = memory_q[raddr_i];
endmodule
