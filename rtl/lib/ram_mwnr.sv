// Memory with WRITES write ports and READS read ports, of memories with one write port.
//
// Source: Tonic, section 4: a bank for each writer, a copy of it for each reader, and a table of the bank that holds
// the live value of each address (LVT). Reads are registered, and see the writes of the same cycle. At most one port
// writes an address in a cycle; `rst_n` serves the assertion of that alone.
module ram_mwnr #(
    parameter int unsigned WIDTH = 36,
    parameter int unsigned DEPTH = 1024,
    parameter int unsigned WRITES = 2,
    parameter int unsigned READS = 2
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
  localparam int unsigned BANK_W = (WRITES == 1) ? 1 : $clog2(WRITES);

  logic [WRITES*READS*WIDTH-1:0] banks;
  logic [READS*BANK_W-1:0]       live_q;
  logic [READS-1:0]              is_written_d, is_written_q;
  logic [READS*WIDTH-1:0]        written_d, written_q;

  generate
    for (genvar w = 0; w < WRITES; w++) begin : g_bank
      ram_1wnr #(.WIDTH(WIDTH), .DEPTH(DEPTH), .READS(READS)) i_bank (
          .clk(clk),
          .we_i(we_i[w]),
          .waddr_i(waddr_i[w*A+:A]),
          .wdata_i(wdata_i[w*WIDTH+:WIDTH]),
          .raddr_i(raddr_i),
          .rdata_o(banks[w*READS*WIDTH+:READS*WIDTH])
      );
    end

    if (WRITES == 1) begin : g_one
      assign live_q = '0;
    end else begin : g_table
      logic [READS*WRITES-1:0] live;
      logic [READS*BANK_W-1:0] live_d;
      ram_live #(.DEPTH(DEPTH), .WRITES(WRITES), .READS(READS)) i_live (
          .clk(clk), .we_i(we_i), .waddr_i(waddr_i), .raddr_i(raddr_i), .live_o(live)
      );
      always_comb begin
        live_d = '0;
        for (int unsigned r = 0; r < READS; r++) begin
          for (int unsigned w = 1; w < WRITES; w++) begin
            if (live[r*WRITES+w]) live_d[r*BANK_W+:BANK_W] = BANK_W'(w);
          end
        end
      end
      always_ff @(posedge clk) live_q <= live_d;
    end
  endgenerate

  // A write in the cycle of a read.
  always_comb begin
    is_written_d = '0;
    written_d = '0;
    for (int unsigned r = 0; r < READS; r++) begin
      for (int unsigned w = 0; w < WRITES; w++) begin
        if (we_i[w] && waddr_i[w*A+:A] == raddr_i[r*A+:A]) begin
          is_written_d[r] = 1'b1;
          written_d[r*WIDTH+:WIDTH] = wdata_i[w*WIDTH+:WIDTH];
        end
      end
    end
  end

  always_ff @(posedge clk) begin
    is_written_q <= is_written_d;
    written_q <= written_d;
  end

  always_comb begin
    rdata_o = written_q;
    for (int unsigned r = 0; r < READS; r++) begin
      if (!is_written_q[r]) begin
        rdata_o[r*WIDTH+:WIDTH] = banks[r*WIDTH+:WIDTH];
        for (int unsigned w = 1; w < WRITES; w++) begin
          if (live_q[r*BANK_W+:BANK_W] == BANK_W'(w)) begin
            rdata_o[r*WIDTH+:WIDTH] = banks[(w*READS+r)*WIDTH+:WIDTH];
          end
        end
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
