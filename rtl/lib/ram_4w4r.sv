// Memory of four write ports and four read ports: one of Tonic's two groups of state (section 4), in which each of four
// modules reads and writes the whole state of a flow of its own.
//
// A bank for each writer, and a copy of it for each reader: 16 memories of one write and one read port, and a table of
// the bank that holds the live value of each address. Reads are registered, and see the writes of the same cycle. At
// most one port writes an address in a cycle. A fifth reader (READS = 5) is for simulation.
module ram_4w4r #(
    parameter int unsigned WIDTH = 72,
    parameter int unsigned DEPTH = 1024,
    parameter int unsigned READS = 4
) (
    input  logic                           clk,
    input  logic                           rst_n,
    input  logic [3:0]                     we_i,
    input  logic [4*$clog2(DEPTH)-1:0]     waddr_i,
    input  logic [4*WIDTH-1:0]             wdata_i,
    input  logic [READS*$clog2(DEPTH)-1:0] raddr_i,
    output logic [READS*WIDTH-1:0]         rdata_o
);
  ram_mwnr #(.WIDTH(WIDTH), .DEPTH(DEPTH), .WRITES(4), .READS(READS)) i_ram (
      .clk(clk), .rst_n(rst_n), .we_i(we_i), .waddr_i(waddr_i), .wdata_i(wdata_i), .raddr_i(raddr_i), .rdata_o(rdata_o)
  );
endmodule
