package org.apache.iceberg.rest;

import java.net.InetSocketAddress;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.iceberg.CatalogUtil;
import org.apache.iceberg.catalog.Catalog;
import org.eclipse.jetty.ee10.servlet.ServletContextHandler;
import org.eclipse.jetty.ee10.servlet.ServletHolder;
import org.eclipse.jetty.server.Server;

/** Iceberg's reference catalog of REST over SQLite, on the loopback alone: a port and a folder. */
public class RestAdapter {
  public static void main(String[] arguments) throws Exception {
    int port = Integer.parseInt(arguments[0]);
    String folder = arguments[1];
    Map<String, String> options =
        Map.of(
            "catalog-impl", "org.apache.iceberg.jdbc.JdbcCatalog",
            "jdbc.schema-version", "V1",
            "warehouse", folder + "/warehouse",
            "uri", "jdbc:sqlite:" + folder + "/catalog.db",
            "clients", "1");
    Catalog catalog = CatalogUtil.buildIcebergCatalog("reference", options, new Configuration());
    ServletContextHandler context = new ServletContextHandler(ServletContextHandler.NO_SESSIONS);
    RESTCatalogServlet servlet = new RESTCatalogServlet(new RESTCatalogAdapter(catalog));
    context.addServlet(new ServletHolder(servlet), "/*");
    Server server = new Server(new InetSocketAddress("127.0.0.1", port));
    server.setHandler(context);
    server.start();
    server.join();
  }
}
