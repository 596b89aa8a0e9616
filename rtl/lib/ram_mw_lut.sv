// Memory in logic cells with WRITES write ports and READS read ports without registers, which see earlier writes only.
//
// As `ram_mwnr`: a bank for each writer, and a table of the live bank of each address. At most one port writes an
// address in a cycle; `rst_n` serves the assertion of that alone.
module ram_mw_lut #(
    parameter int unsigned WIDTH = 10,
    parameter int unsigned DEPTH = 1024,
    parameter int unsigned WRITES = 2,
    parameter int unsigned READS = 1
) (
    input  logic                            clk,
    input  logic                            rst_n,
    input  logic [WRITES-1:0]               we_i,
    input  logic [WRITES*$clog2(DEPTH)-1:0] waddr_i,
    input  logic [WRITES*WIDTH-1:0]         wdata_i,
    input  logic [READS*$clog2(DEPTH)-1:0]  raddr_i,
    output logic [READS*WIDTH-1:0]          rdata_o
);
  localparam int unsigned A = $clog2(DEPTH);

  logic [WRITES*READS*WIDTH-1:0] banks;
  logic [READS*WRITES-1:0]       live;

  generate
    for (genvar w = 0; w < WRITES; w++) begin : g_bank
      ram_lut #(.WIDTH(WIDTH), .DEPTH(DEPTH), .READS(READS)) i_bank (
          .clk(clk),
          .we_i(we_i[w]),
          .waddr_i(waddr_i[w*A+:A]),
          .wdata_i(wdata_i[w*WIDTH+:WIDTH]),
          .raddr_i(raddr_i),
          .rdata_o(banks[w*READS*WIDTH+:READS*WIDTH])
      );
    end
  endgenerate

  ram_live #(.DEPTH(DEPTH), .WRITES(WRITES), .READS(READS)) i_live (
      .clk(clk), .we_i(we_i), .waddr_i(waddr_i), .raddr_i(raddr_i), .live_o(live)
  );

  always_comb begin
    rdata_o = '0;
    for (int unsigned r = 0; r < READS; r++) begin
      for (int unsigned w = 0; w < WRITES; w++) begin
        rdata_o[r*WIDTH+:WIDTH] = rdata_o[r*WIDTH+:WIDTH] |
            ({WIDTH{live[r*WRITES+w]}} & banks[(w*READS+r)*WIDTH+:WIDTH]);
      end
    end
  end

`ifndef SYNTHESIS
  // Before a reset, write enables are random.
  always_ff @(posedge clk) begin
    for (int unsigned w = 1; w < WRITES; w++) begin
      for (int unsigned v = 0; v < w; v++) begin
        // Otherwise two ports write one address.
        assert (!(rst_n && we_i[w] && we_i[v] && waddr_i[w*A+:A] == waddr_i[v*A+:A]));
      end
    end
  end
`endif
endmodule
