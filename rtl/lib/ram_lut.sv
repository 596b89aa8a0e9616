// Small memory in logic cells: one write port, and READS read ports without registers, which see earlier writes only.
//
// All read ports are of one memory, not of copies: yosys 0.23 maps a copy whose reader has the writer's address to a
// cell that it does not know.
module ram_lut #(
    parameter int unsigned WIDTH = 10,
    parameter int unsigned DEPTH = 256,
    parameter int unsigned READS = 1
) (
    input  logic                           clk,
    input  logic                           we_i,
    input  logic [$clog2(DEPTH)-1:0]       waddr_i,
    input  logic [WIDTH-1:0]               wdata_i,
    input  logic [READS*$clog2(DEPTH)-1:0] raddr_i,
    output logic [READS*WIDTH-1:0]         rdata_o
);
  localparam int unsigned A = $clog2(DEPTH);

  logic [WIDTH-1:0] memory_q[DEPTH];

  always_ff @(posedge clk) if (we_i) memory_q[waddr_i] <= wdata_i;

  generate
    for (genvar r = 0; r < READS; r++) begin : g_read
      assign rdata_o[r*WIDTH+:WIDTH] = memory_q[raddr_i[r*A+:A]];
    end
  endgenerate
endmodule
