// State of all flows in the credit engine: fields in stores by the modules that write them.
//
// Source: Tonic, section 4 (two groups of memories). Modules, in the order of all vectors here, lowest first: Transmit
// (xmit), Enqueue and commands (enq), parameters set for a packet (inc) and by a visit (per); then, with DEBUG, a
// reader. Each presents the flow that it processes in the next cycle. Stores of other credit schemes are
// removed by synthesis, as are read ports whose data is not used.
//
//   store    fields                       writers
//   entries  the ring, N memories         enq
//   shorts   of the ring, is_short        enq
//   place    head, count                  xmit, enq
//   bytes    segment_bytes, last_bytes    enq
//   pace     rate                         enq, inc, per
//   fill     credit, since                xmit, enq
//   granted  granted                      enq, inc
//   extra    extra                        enq, per
//   sent     sent                         xmit, enq
module cr_context #(
    parameter int unsigned FLOWS = 1024,
    parameter int unsigned DEBUG = 0
) (
    input  logic                                    clk,
    input  logic                                    rst_n,
    input  logic [5*$clog2(FLOWS)-1:0]              next_flow_i,
    input  logic [4*$clog2(FLOWS)-1:0]              flow_i,
    input  logic                                    we_entry_i,
    input  logic [tonic_pkg::N_W-1:0]               entry_place_i,
    input  tonic_pkg::entry_t                       entry_i,
    input  logic [1:0]                              we_place_i,
    input  logic                                    we_bytes_i,
    input  logic [2:0]                              we_pace_i,
    input  logic [1:0]                              we_fill_i,
    input  logic [1:0]                              we_granted_i,
    input  logic [1:0]                              we_extra_i,
    input  logic [1:0]                              we_sent_i,
    input  logic [2*tonic_pkg::N_W-1:0]             head_i,
    input  logic [2*tonic_pkg::COUNT_W-1:0]         count_i,
    input  logic [4*tonic_pkg::CREDIT_W-1:0]        credit_i,
    output logic [5*tonic_pkg::RING_W-1:0]          ring_o,
    output logic [5*tonic_pkg::CREDIT_W-1:0]        credit_o
);
  localparam int unsigned F = $clog2(FLOWS);
  localparam int unsigned N = tonic_pkg::N;
  localparam int unsigned N_W = tonic_pkg::N_W;
  localparam int unsigned COUNT_W = tonic_pkg::COUNT_W;
  localparam int unsigned ENTRY_W = tonic_pkg::ENTRY_W;
  localparam int unsigned RING_W = tonic_pkg::RING_W;
  localparam int unsigned CREDIT_W = tonic_pkg::CREDIT_W;
  localparam int unsigned READS = (DEBUG != 0) ? 5 : 4;

  logic [F-1:0]       flow_xmit, flow_enq, flow_inc, flow_per;
  tonic_pkg::credit_t credit_xmit, credit_enq, credit_inc, credit_per;
  assign {flow_per, flow_inc, flow_enq, flow_xmit} = flow_i;
  assign credit_xmit = credit_i[0*CREDIT_W+:CREDIT_W];
  assign credit_enq = credit_i[1*CREDIT_W+:CREDIT_W];
  assign credit_inc = credit_i[2*CREDIT_W+:CREDIT_W];
  assign credit_per = credit_i[3*CREDIT_W+:CREDIT_W];

  // Transmit reads the ring. Enqueue needs no more of it than which addresses are short, for the length of the oldest: a
  // word of N bits that it writes as a whole.
  localparam int unsigned PART_W = ENTRY_W - 1;
  localparam int unsigned PLACE_W = N_W + COUNT_W;
  localparam int unsigned BYTES_W = 28;
  localparam int unsigned FILL_W = 64;

  logic [N*PART_W-1:0]      entries;
  logic [2*N-1:0]           shorts;
  logic [N-1:0]             next_shorts;
  logic [5*PLACE_W-1:0]     place;
  logic [5*BYTES_W-1:0]     bytes;
  logic [5*23-1:0]          pace;
  logic [5*FILL_W-1:0]      fill;
  logic [5*24-1:0]          granted, extra, sent;

  generate
    for (genvar n = 0; n < N; n++) begin : g_entry
      ram_mwnr #(.WIDTH(PART_W), .DEPTH(FLOWS), .WRITES(1), .READS(1)) i_entry (
          .clk(clk),
          .rst_n(rst_n),
          .we_i(we_entry_i && (entry_place_i == N_W'(n))),
          .waddr_i(flow_enq),
          .wdata_i({entry_i.times_sent, entry_i.segment}),
          .raddr_i(next_flow_i[F-1:0]),
          .rdata_o(entries[n*PART_W+:PART_W])
      );
      assign next_shorts[n] = (entry_place_i == N_W'(n)) ? entry_i.is_short : shorts[N+n];
    end
  endgenerate

  ram_mwnr #(.WIDTH(N), .DEPTH(FLOWS), .WRITES(1), .READS(2)) i_short (
      .clk(clk),
      .rst_n(rst_n),
      .we_i(we_entry_i),
      .waddr_i(flow_enq),
      .wdata_i(next_shorts),
      .raddr_i(next_flow_i[2*F-1:0]),
      .rdata_o(shorts)
  );

  ram_mwnr #(.WIDTH(PLACE_W), .DEPTH(FLOWS), .WRITES(2), .READS(READS)) i_place (
      .clk(clk),
      .rst_n(rst_n),
      .we_i(we_place_i),
      .waddr_i({flow_enq, flow_xmit}),
      .wdata_i({head_i[N_W+:N_W], count_i[COUNT_W+:COUNT_W], head_i[0+:N_W], count_i[0+:COUNT_W]}),
      .raddr_i(next_flow_i[READS*F-1:0]),
      .rdata_o(place[READS*PLACE_W-1:0])
  );

  ram_mwnr #(.WIDTH(BYTES_W), .DEPTH(FLOWS), .WRITES(1), .READS(READS)) i_bytes (
      .clk(clk),
      .rst_n(rst_n),
      .we_i(we_bytes_i),
      .waddr_i(flow_enq),
      .wdata_i({credit_enq.last_bytes, credit_enq.segment_bytes}),
      .raddr_i(next_flow_i[READS*F-1:0]),
      .rdata_o(bytes[READS*BYTES_W-1:0])
  );

  ram_mwnr #(.WIDTH(23), .DEPTH(FLOWS), .WRITES(3), .READS(READS)) i_pace (
      .clk(clk),
      .rst_n(rst_n),
      .we_i(we_pace_i),
      .waddr_i({flow_per, flow_inc, flow_enq}),
      .wdata_i({credit_per.rate, credit_inc.rate, credit_enq.rate}),
      .raddr_i(next_flow_i[READS*F-1:0]),
      .rdata_o(pace[READS*23-1:0])
  );

  ram_mwnr #(.WIDTH(FILL_W), .DEPTH(FLOWS), .WRITES(2), .READS(READS)) i_fill (
      .clk(clk),
      .rst_n(rst_n),
      .we_i(we_fill_i),
      .waddr_i({flow_enq, flow_xmit}),
      .wdata_i({credit_enq.since, credit_enq.credit, credit_xmit.since, credit_xmit.credit}),
      .raddr_i(next_flow_i[READS*F-1:0]),
      .rdata_o(fill[READS*FILL_W-1:0])
  );

  ram_mwnr #(.WIDTH(24), .DEPTH(FLOWS), .WRITES(2), .READS(READS)) i_granted (
      .clk(clk),
      .rst_n(rst_n),
      .we_i(we_granted_i),
      .waddr_i({flow_inc, flow_enq}),
      .wdata_i({credit_inc.granted, credit_enq.granted}),
      .raddr_i(next_flow_i[READS*F-1:0]),
      .rdata_o(granted[READS*24-1:0])
  );

  ram_mwnr #(.WIDTH(24), .DEPTH(FLOWS), .WRITES(2), .READS(READS)) i_extra (
      .clk(clk),
      .rst_n(rst_n),
      .we_i(we_extra_i),
      .waddr_i({flow_per, flow_enq}),
      .wdata_i({credit_per.extra, credit_enq.extra}),
      .raddr_i(next_flow_i[READS*F-1:0]),
      .rdata_o(extra[READS*24-1:0])
  );

  ram_mwnr #(.WIDTH(24), .DEPTH(FLOWS), .WRITES(2), .READS(READS)) i_sent (
      .clk(clk),
      .rst_n(rst_n),
      .we_i(we_sent_i),
      .waddr_i({flow_enq, flow_xmit}),
      .wdata_i({credit_enq.sent, credit_xmit.sent}),
      .raddr_i(next_flow_i[READS*F-1:0]),
      .rdata_o(sent[READS*24-1:0])
  );

  generate
    if (DEBUG == 0) begin : g_no_debug
      assign place[4*PLACE_W+:PLACE_W] = '0;
      assign bytes[4*BYTES_W+:BYTES_W] = '0;
      assign pace[4*23+:23] = '0;
      assign fill[4*FILL_W+:FILL_W] = '0;
      assign granted[4*24+:24] = '0;
      assign extra[4*24+:24] = '0;
      assign sent[4*24+:24] = '0;
    end
  endgenerate

  generate
    for (genvar r = 0; r < 5; r++) begin : g_read
      logic [N*ENTRY_W-1:0] ring;
      if (r < 2) begin : g_ring
        for (genvar n = 0; n < N; n++) begin : g_entry
          assign ring[n*ENTRY_W+:ENTRY_W] = {shorts[r*N+n], (r == 0) ? entries[n*PART_W+:PART_W] : PART_W'(0)};
        end
      end else begin : g_no_ring
        assign ring = '0;
      end
      cr_fields i_fields (
          .entries_i(ring),
          .place_i(place[r*PLACE_W+:PLACE_W]),
          .bytes_i(bytes[r*BYTES_W+:BYTES_W]),
          .pace_i(pace[r*23+:23]),
          .fill_i(fill[r*FILL_W+:FILL_W]),
          .granted_i(granted[r*24+:24]),
          .extra_i(extra[r*24+:24]),
          .sent_i(sent[r*24+:24]),
          .ring_o(ring_o[r*RING_W+:RING_W]),
          .credit_o(credit_o[r*CREDIT_W+:CREDIT_W])
      );
    end
  endgenerate
endmodule
